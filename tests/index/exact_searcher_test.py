"""Exact search equals brute force in numpy."""

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import exact_searcher


def brute_force(embeddings_NxE, queries_BxE, k):
  scores_BxN = queries_BxE.astype(np.float64) @ embeddings_NxE.astype(np.float64).T
  ids_BxK = np.argsort(-scores_BxN, axis=1, kind="stable")[:, :k]
  return ids_BxK, np.take_along_axis(scores_BxN, ids_BxK, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("batch_size", [1, 8, 33])
def test_equals_brute_force(batch_size, dtype, float_tolerance):
  rng = np.random.default_rng(batch_size)
  embeddings_NxE = rng.standard_normal((500, 16)).astype(dtype)
  queries_BxE = rng.standard_normal((batch_size, 16)).astype(np.float32)
  found = exact_searcher.ExactSearcher(embeddings_NxE).search(queries_BxE, 7)
  ids_BxK, scores_BxK = brute_force(embeddings_NxE, queries_BxE, 7)
  np.testing.assert_array_equal(found.ids_BxK, ids_BxK)
  np.testing.assert_allclose(found.scores_BxK, scores_BxK, atol=float_tolerance(depth=16, scale=16))
  assert found.ids_BxK.dtype == np.int32
  assert found.scores_BxK.dtype == np.float32


def test_a_batch_larger_than_the_device_memory_allows_is_searched_in_parts(monkeypatch):
  monkeypatch.setattr(exact_searcher, "_MAX_SCORES", 16 * 50)
  rng = np.random.default_rng(0)
  embeddings_NxE = rng.standard_normal((50, 4)).astype(np.float32)
  queries_BxE = rng.standard_normal((37, 4)).astype(np.float32)
  found = exact_searcher.ExactSearcher(embeddings_NxE).search(queries_BxE, 5)
  np.testing.assert_array_equal(found.ids_BxK, brute_force(embeddings_NxE, queries_BxE, 5)[0])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_block_by_block_is_the_same(dtype, float_tolerance):
  random = np.random.default_rng(0)
  embeddings_NxE = random.normal(size=(23, 4)).astype(dtype)
  queries_BxE = random.normal(size=(3, 4)).astype(np.float32)
  whole = exact_searcher.ExactSearcher(embeddings_NxE.astype(np.float32)).search(queries_BxE, 9)
  searcher = exact_searcher.BlockwiseExactSearcher(embeddings_NxE, block_size=7)
  blocks = searcher.search(queries_BxE, 9)
  np.testing.assert_array_equal(blocks.ids_BxK, whole.ids_BxK)
  np.testing.assert_allclose(
    blocks.scores_BxK, whole.scores_BxK, atol=float_tolerance(depth=4, scale=8)
  )


def test_equal_scores_come_by_lower_id():
  found = exact_searcher.ExactSearcher(np.ones((6, 3), np.float32)).search(np.ones((1, 3)), 4)
  np.testing.assert_array_equal(found.ids_BxK, [[0, 1, 2, 3]])


@pytest.mark.parametrize("num_passages", [1, 3])
def test_a_corpus_smaller_than_k_is_filled_up(num_passages):
  embeddings_NxE = np.arange(1, num_passages + 1, dtype=np.float32)[:, None]
  found = exact_searcher.ExactSearcher(embeddings_NxE).search(np.ones((2, 1)), 5)
  missing = 5 - num_passages
  row = list(range(num_passages))[::-1] + [-2] * missing
  np.testing.assert_array_equal(found.ids_BxK, [row, row])
  np.testing.assert_array_equal(found.scores_BxK[:, num_passages:], -np.inf)
  assert np.isfinite(found.scores_BxK[:, :num_passages]).all()
