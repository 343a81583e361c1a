"""Batches survive the conversion to t5x's flat mappings of arrays."""

import jax
import numpy as np
import pytest

pytest.importorskip("t5x", reason="needs the extra t5x; see docs/t5x.md")

import tensorflow as tf

from realm_jax.devices.datatypes import RetrievedBatch, batch_of, named_arrays
from realm_jax.t5x_adapter import features

LENGTHS = {"query": 6, "mlm_positions": 2, "mlm_targets": 2}
UID = 0x7123456789ABCDEF


def test_a_batch_is_made_again_of_its_arrays(make_retrieved_batch):
  batch = make_retrieved_batch(0, queries=3, passages=2, masks=2, vocab_size=9)
  named = named_arrays(batch)
  assert named["queries.query.ids"] is batch.queries.query.ids
  assert all(isinstance(array, np.ndarray) for array in named.values())
  again = batch_of(RetrievedBatch, named)
  assert jax.tree.structure(again) == jax.tree.structure(batch)
  assert all(a is b for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(batch), strict=True))


def test_source_uids_stay_whole():
  example = {
    "query": np.int32([5, 6, 7, 0, 0, 0]),
    "mlm_positions": np.int32([1, 0]),
    "mlm_targets": np.int32([8, 0]),
    "mlm_weights": np.float32([1, 0]),
    "source_uid": np.int64([UID]),
    "rejections": np.zeros(3, np.int64),
  }
  dataset = tf.data.Dataset.from_tensors(example)
  converter = features.make_converter(features.MaskedQueryFeatures)
  batch = next(converter(dataset, LENGTHS).batch(1).as_numpy_iterator())
  assert {array.dtype.itemsize for array in batch.values()} == {4}
  queries = features.masked_queries({name: jax.device_put(a) for name, a in batch.items()})
  np.testing.assert_array_equal(queries.source_uid_B, [UID])
  np.testing.assert_array_equal(queries.query.ids, [[5, 6, 7, 0, 0, 0]])
  np.testing.assert_array_equal(queries.mlm_weights_BxM, [[1, 0]])


def test_queries_are_not_packed():
  with pytest.raises(ValueError, match="pack=True.*DatasetConfig.pack = False"):
    features.make_converter(features.MaskedQueryFeatures, pack=True)
