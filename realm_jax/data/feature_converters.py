"""Feature converters: task features to the fixed shapes of a model."""

from collections.abc import Mapping

import seqio
import tensorflow as tf

from realm_jax.data.batches import REJECTIONS

_SPEC = seqio.FeatureConverter.FeatureSpec


class _PaddingConverter(seqio.FeatureConverter):
  """Pads the features of `MODEL_FEATURES`, which `_make` may add to; nothing is packed."""

  PACKING_FEATURE_DTYPES = None

  def __init__(self):
    # `_pad` checks the lengths; SeqIO's checks run several operations an example.
    super().__init__(pack=False, apply_length_check=False)

  def _make(self, features, lengths: Mapping[str, int]):
    """Returns the features of one example before padding."""
    del lengths
    return features

  def _convert_features(
    self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
  ) -> tf.data.Dataset:
    lengths = self.get_model_feature_lengths(task_feature_lengths)

    def convert(features):
      features = self._make(features, lengths)
      return {name: _pad(features[name], lengths[name]) for name in self.MODEL_FEATURES}

    return ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)


class MaskedQueryConverter(seqio.FeatureConverter):
  """Takes masked queries as they are, because `masking.build_masked_query` pads many at once."""

  TASK_FEATURES = {
    "query": _SPEC(tf.int32),
    "mlm_positions": _SPEC(tf.int32),
    "mlm_targets": _SPEC(tf.int32),
  }
  MODEL_FEATURES = {
    **TASK_FEATURES,
    "mlm_weights": _SPEC(tf.float32),
    "source_uid": _SPEC(tf.int64),
    "rejections": _SPEC(tf.int64),
  }
  PACKING_FEATURE_DTYPES = None

  def __init__(self):
    super().__init__(pack=False, apply_length_check=False)

  def _convert_features(
    self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
  ) -> tf.data.Dataset:
    del task_feature_lengths
    return ds

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
    masks = task_feature_lengths["mlm_targets"]
    return {
      "query": task_feature_lengths["query"],
      "mlm_positions": masks,
      "mlm_targets": masks,
      "mlm_weights": masks,
      "source_uid": 1,
      "rejections": len(REJECTIONS),
    }


class OpenQuestionConverter(_PaddingConverter):
  """Pads `query`; `question_index` is the position of the question in its file."""

  TASK_FEATURES = {"query": _SPEC(tf.int32), "question_index": _SPEC(tf.int64)}
  MODEL_FEATURES = TASK_FEATURES

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
    return {"query": task_feature_lengths["query"], "question_index": 1}


class PairConverter(_PaddingConverter):
  """Pads queries; joins title and body to `passage`, with segments; adds `passage_uid`."""

  TASK_FEATURES = {"query": _SPEC(tf.int32), "title": _SPEC(tf.int32), "body": _SPEC(tf.int32)}
  MODEL_FEATURES = {
    "query": _SPEC(tf.int32),
    "passage": _SPEC(tf.int32),
    "passage_segments": _SPEC(tf.int32),
    "passage_uid": _SPEC(tf.int64),
  }

  def __init__(self, *, cls_id: int, sep_id: int):
    super().__init__()
    self._cls_id, self._sep_id = cls_id, sep_id

  def _make(self, features, lengths: Mapping[str, int]):
    room = lengths["passage"] - 3
    title = features["title"][:room]
    body = features["body"][: room - tf.size(title)]
    return {
      "query": features["query"],
      "passage": tf.concat([[self._cls_id], title, [self._sep_id], body, [self._sep_id]], 0),
      "passage_segments": tf.repeat([0, 1], [tf.size(title) + 2, tf.size(body) + 1]),
      "passage_uid": features["uid"][tf.newaxis],
    }

  def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
    passage = task_feature_lengths["body"]
    return {
      "query": task_feature_lengths["query"],
      "passage": passage,
      "passage_segments": passage,
      "passage_uid": 1,
    }


def _pad(values: tf.Tensor, length: int) -> tf.Tensor:
  return tf.ensure_shape(tf.pad(values, [[0, length - tf.size(values)]]), [length])
