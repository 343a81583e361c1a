"""Exact search, on one device, in blocks or over eight devices, equals brute force in numpy."""

import jax
import ml_dtypes
import numpy as np
import pytest

from realm_jax.devices import partitioning
from realm_jax.index.vectors import device_searcher, searcher
from realm_jax.index.vectors.device_searcher import DeviceSearcher
from realm_jax.index.vectors.exact_searcher import BlockwiseExactSearcher, ExactSearcher

KINDS = {
  "one device": ExactSearcher,
  "blocks": lambda given: BlockwiseExactSearcher(given, block_size=7),
  "8 devices": lambda given: DeviceSearcher(given, mesh=partitioning.make_mesh(model=1)),
  "2 x 4 devices": lambda given: DeviceSearcher(given, mesh=partitioning.make_mesh(model=4)),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])


def embeddings(num_passages, size=16, dtype=np.float32, seed=0):
  return np.random.default_rng(seed).standard_normal((num_passages, size)).astype(dtype)


def brute_force(embeddings_NxE, queries_BxE, k):
  scores_BxN = queries_BxE.astype(np.float64) @ embeddings_NxE.astype(np.float64).T
  ids_BxK = np.argsort(-scores_BxN, axis=1, kind="stable")[:, :k]
  return ids_BxK, np.take_along_axis(scores_BxN, ids_BxK, axis=1)


@each_kind
@each_dtype
@pytest.mark.parametrize(("num_passages", "batch_size"), [(500, 8), (1001, 33), (9, 1)])
def test_equals_brute_force(make, num_passages, batch_size, dtype, float_tolerance):
  """Includes rows that eight devices do not divide, and more results than a device has rows."""
  given, queries = embeddings(num_passages, dtype=dtype), embeddings(batch_size, seed=1)
  found = make(given).search(queries, 7)
  ids_BxK, scores_BxK = brute_force(given, queries, 7)
  np.testing.assert_array_equal(found.ids_BxK, ids_BxK)
  np.testing.assert_allclose(found.scores_BxK, scores_BxK, atol=float_tolerance(depth=16, scale=16))
  assert (found.ids_BxK.dtype, found.scores_BxK.dtype) == (np.int32, np.float32)


@each_kind
def test_equal_scores_come_by_lower_id(make):
  found = make(np.ones((40, 3), np.float32)).search(np.ones((1, 3)), 9)
  np.testing.assert_array_equal(found.ids_BxK, [list(range(9))])


@each_kind
@pytest.mark.parametrize("num_passages", [1, 3])
def test_a_corpus_smaller_than_k_is_filled_up(make, num_passages):
  given = np.arange(1, num_passages + 1, dtype=np.float32)[:, None]
  found = make(given).search(np.ones((2, 1)), 5)
  row = list(range(num_passages))[::-1] + [-2] * (5 - num_passages)
  np.testing.assert_array_equal(found.ids_BxK, [row, row])
  np.testing.assert_array_equal(found.scores_BxK[:, num_passages:], -np.inf)
  assert np.isfinite(found.scores_BxK[:, :num_passages]).all()


@pytest.mark.parametrize("at_once", [2**27, 16 * 50])
def test_a_search_begun_for_queries_on_the_devices_is_the_same(monkeypatch, at_once):
  """Also if they are too many to be scored at once."""
  monkeypatch.setattr(device_searcher, "_MAX_SCORES", at_once)
  device_searcher.search_program.cache_clear()
  given, queries = embeddings(401), embeddings(40, seed=1)
  ids_BxK, _ = brute_force(given, queries, 401)
  np.testing.assert_array_equal(ExactSearcher(given).search(queries, 401).ids_BxK, ids_BxK)
  index = DeviceSearcher(given)
  placed = jax.device_put(queries, partitioning.batch_sharding(partitioning.make_mesh(model=2)))
  found = searcher.begin(index, placed, 500)()
  np.testing.assert_array_equal(found.ids_BxK[:, :401], ids_BxK)
  assert (found.ids_BxK[:, 401:] == -2).all()
  with pytest.raises(ValueError, match="NaN or infinity"):
    searcher.begin(index, placed * np.nan, 5)()


@each_dtype
def test_approximate_search_reaches_its_recall(dtype):
  given, queries = embeddings(20_000, dtype=dtype), embeddings(64, seed=1)
  found = DeviceSearcher(given, recall_target=0.9).search(queries, 10)
  exact_ids, _ = brute_force(given, queries, 10)
  assert searcher.recall_at_k(found.ids_BxK, exact_ids) >= 0.9
  scores = np.einsum("BE,BKE->BK", queries, given[found.ids_BxK].astype(np.float32))
  np.testing.assert_allclose(found.scores_BxK, scores, rtol=0.05, atol=0.05)
  assert (np.diff(found.scores_BxK, axis=1) <= 0).all()


def test_a_corpus_beyond_the_devices_is_refused_with_the_figure(monkeypatch):
  given = embeddings(80_000, size=128)  # 4.9 MiB on each device, 0.3 MiB of scores
  monkeypatch.setattr(device_searcher, "_free_bytes", lambda mesh: 2**20)
  with pytest.raises(ValueError, match=r"each of 8 devices, .* enough for 15416 passages; use"):
    DeviceSearcher(given)
  monkeypatch.setattr(device_searcher, "_free_bytes", lambda mesh: 6 * 2**20)
  DeviceSearcher(given)
  message = "take 11.92 GiB and 0.75 GiB of scores on each of 4 devices, which have 8.00 GiB"
  with pytest.raises(ValueError, match=message):
    device_searcher.check_memory(
      num_passages=100_000_000,
      embedding_size=128,
      dtype=np.float32,
      num_devices=4,
      memory_bytes=8 * 2**30,
    )
