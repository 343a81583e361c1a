"""Batches of a SeqIO task as numpy arrays: fixed shapes, and a position that can be restored."""

import functools
import os
import tempfile
from collections.abc import Mapping

import numpy as np
import seqio
import tensorflow as tf

from realm_jax.corpus.passage_store import BODY_SHARE, SPECIAL_TOKENS_PER_PASSAGE
from realm_jax.data.batches import REJECTIONS, Batches, Features, Shard, TooFewExamplesError

_POSITION = "iterator"
_PREFETCHED = 2  # batches
# Closing a pipeline waits for its tuning thread, which can sleep for up to a minute.
_UNTUNED = tf.data.Options()
_UNTUNED.autotune.enabled = False
_SPEC = seqio.FeatureConverter.FeatureSpec


class BatchIterator(Batches):
  """Iterates over batches of numpy arrays.

  `position()` includes the position, random state and shuffle buffer of the whole pipeline, so a
  restored iterator yields what the saved one would have yielded. All its operations must be
  stateless.
  """

  def __init__(self, dataset: tf.data.Dataset):
    self._iterator = iter(dataset.with_options(_UNTUNED))
    self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)

  def __next__(self) -> Features:
    return {name: value.numpy() for name, value in next(self._iterator).items()}

  def position(self) -> Features:
    """Returns the files of the iterator's checkpoint as uint8 arrays."""
    with tempfile.TemporaryDirectory() as directory:
      self._checkpoint.write(os.path.join(directory, _POSITION))
      return {
        name: np.fromfile(os.path.join(directory, name), np.uint8)
        for name in sorted(os.listdir(directory))
      }

  def restore(self, position: Features) -> None:
    if not any(name.startswith(_POSITION) for name in position):
      raise ValueError(
        "the saved run read prepared examples; use the same examples or another workdir"
      )
    with tempfile.TemporaryDirectory() as directory:
      for name, content in position.items():
        np.asarray(content, np.uint8).tofile(os.path.join(directory, os.path.basename(name)))
      self._checkpoint.read(os.path.join(directory, _POSITION)).assert_consumed()


@tf.autograph.experimental.do_not_convert  # takes a second, and finds no control flow
def task_batches(
  task: seqio.Task | seqio.Mixture | str,
  *,
  converter: seqio.FeatureConverter,
  lengths: dict[str, int],
  batch_size: int,
  seed: int,
  training: bool,
  shard: Shard | None = None,
) -> BatchIterator:
  """Opens a SeqIO task.

  Args:
    task: A registered task or mixture, or its name.
    seed: Seeds shuffling and masking.
    training: Whether to shuffle and repeat indefinitely. Otherwise makes one pass in order and pads
      the last batch with zeros (zero weights).
    shard: The part of the data that this process reads.

  Raises:
    TooFewExamplesError: If a part to train on has no examples.
  """
  task = seqio.get_mixture_or_task(task) if isinstance(task, str) else task
  shard_info = shard and seqio.ShardInfo(shard.index, shard.num_shards)
  if training:
    _check_for_examples(task, tuple(lengths.items()), shard_info)
  dataset = seqio.get_dataset(
    task,
    lengths,
    converter,
    dataset_split="train",
    shuffle=training,
    num_epochs=None if training else 1,
    shard_info=shard_info,
    verbose=False,
    seed=seed,
    trim_output_features=False,  # tasks and converters do, and this takes longer than masking
  )
  if training:
    dataset = dataset.batch(batch_size, drop_remainder=True)
  else:
    dataset = dataset.padded_batch(batch_size).map(lambda batch: _fill(batch, batch_size))
  return BatchIterator(dataset.prefetch(_PREFETCHED))


@functools.lru_cache  # building another pipeline takes seconds
def _check_for_examples(
  task: seqio.Task | seqio.Mixture,
  lengths: tuple[tuple[str, int], ...],
  shard_info: seqio.ShardInfo | None,
) -> None:
  """Raises TooFewExamplesError if one pass yields no examples, which nothing can repeat."""
  once = task.get_dataset(
    dict(lengths), split="train", shuffle=False, num_epochs=1, seed=0, shard_info=shard_info
  )
  if not any(True for _ in once.take(1).with_options(_UNTUNED)):
    if shard_info is None:
      raise TooFewExamplesError(
        f"{task.name} yields no examples: its corpus is empty, or all are rejected"
      )
    raise TooFewExamplesError(
      f"{task.name} yields no examples for stream {shard_info.index} of {shard_info.num_shards}"
    )


def _fill(batch, batch_size: int):
  return {
    name: tf.pad(value, [[0, batch_size - tf.shape(value)[0]]] + [[0, 0]] * (len(value.shape) - 1))
    for name, value in batch.items()
  }


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
  """Takes masked queries as they are: `preprocessors.build_masked_query` pads many at once."""

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
    length, body = lengths["passage"], features["body"]
    room = length - SPECIAL_TOKENS_PER_PASSAGE
    title = features["title"][: room - tf.minimum(tf.size(body), length // BODY_SHARE)]
    body = body[: room - tf.size(title)]
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
