import numpy as np
import pytest
import tensorflow as tf

from realm_jax.data.batches import masked_queries
from realm_jax.data.feature_converters import MaskedQueryConverter, PairConverter


def convert(converter, features, lengths):
  data = tf.data.Dataset.from_tensors(features)
  (converted,) = converter(data, lengths).as_numpy_iterator()
  return converted


def int32(*values):
  return tf.constant(values, tf.int32)


def test_masked_queries_become_a_batch():
  lengths = {"query": 6, "mlm_positions": 3, "mlm_targets": 3}
  masked = {
    "query": int32(2, 7, 4, 3, 0, 0),
    "mlm_positions": int32(2, 0, 0),
    "mlm_targets": int32(8, 0, 0),
    "mlm_weights": tf.constant([1, 0, 0], tf.float32),
    "source_uid": tf.constant([2**62], tf.int64),
    "rejections": tf.constant([1, 0, 5], tf.int64),
  }
  features = convert(MaskedQueryConverter(), masked, lengths)
  assert features["rejections"].tolist() == [1, 0, 5]
  batch = masked_queries({name: value[np.newaxis] for name, value in features.items()})
  assert batch.query.ids.tolist() == [[2, 7, 4, 3, 0, 0]]
  assert batch.query.mask.tolist() == [[True] * 4 + [False] * 2]
  assert batch.query.segments.tolist() == [[0] * 6]
  assert batch.mlm_weights_BxM.tolist() == [[1, 0, 0]]
  assert batch.source_uid_B.tolist() == [2**62]


@pytest.mark.parametrize(
  ("title", "body", "passage", "segments"),
  [
    ([5], [6, 7], [2, 5, 3, 6, 7, 3, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]),
    ([], [6], [2, 3, 6, 3, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0]),
    ([5], [6, 7, 8, 9, 10, 11], [2, 5, 3, 6, 7, 8, 9, 3], [0, 0, 0, 1, 1, 1, 1, 1]),
    ([5, 5, 5, 5, 5, 5, 5], [6], [2, 5, 5, 5, 5, 5, 3, 3], [0, 0, 0, 0, 0, 0, 0, 1]),
  ],
)
def test_title_and_body_become_a_passage(title, body, passage, segments):
  features = convert(
    PairConverter(cls_id=2, sep_id=3),
    {
      "query": int32(2, 9, 3),
      "title": int32(*title),
      "body": int32(*body),
      "uid": tf.constant(2**62, tf.int64),
    },
    {"query": 5, "title": 8, "body": 8},
  )
  assert features["passage_uid"].tolist() == [2**62]
  assert features["query"].tolist() == [2, 9, 3, 0, 0]
  assert features["passage"].tolist() == passage
  assert features["passage_segments"].tolist() == segments
