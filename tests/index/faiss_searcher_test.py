"""FAISS shards: recall, arrays and what does not belong to them."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import assembly, exact_searcher, searcher
from tests.clustered import clustered

faiss_searcher = pytest.importorskip(
  "realm_jax.index.faiss_searcher", reason="the extra faiss is not installed", exc_type=ImportError
)
pytestmark = pytest.mark.interop
SMALL_TREES = searcher.SearcherConfig(kind="faiss", min_passages_for_tree=64, threads=2)


def build(embeddings_NxE, config):
  config = config.for_corpus(len(embeddings_NxE))
  shards = assembly.build_shards(embeddings_NxE, config=config)
  return assembly.assemble(shards, config=config), shards


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_it_finds_nearly_what_exact_search_finds(num_shards, dtype, float_tolerance):
  embeddings_NxE, queries_BxE = clustered(6000, dtype=dtype)
  config = dataclasses.replace(SMALL_TREES, num_shards=num_shards, num_leaves_to_search=30)
  index, shards = build(embeddings_NxE, config)
  assert set(shards[0]) == {"embeddings", "faiss_index"}
  exact = exact_searcher.ExactSearcher(embeddings_NxE).search(queries_BxE, 10)
  found = index.search(queries_BxE, 10)
  recall = searcher.recall_at_k(found.ids_BxK, exact.ids_BxK)
  assert recall >= 0.95
  fewer = index.with_leaves(1).search(queries_BxE, 10)
  assert searcher.recall_at_k(fewer.ids_BxK, exact.ids_BxK) < recall
  true_BxK = np.einsum("BE,BKE->BK", queries_BxE, embeddings_NxE[found.ids_BxK].astype(np.float32))
  np.testing.assert_allclose(found.scores_BxK, true_BxK, rtol=float_tolerance(depth=32, scale=4))
  assert found.ids_BxK.dtype == np.int32


@pytest.mark.parametrize("num_passages", [1, 63, 64, 400])
def test_a_k_above_the_corpus_returns_all_of_it(num_passages):
  embeddings_NxE, queries_BxE = clustered(num_passages)
  index, _ = build(embeddings_NxE, dataclasses.replace(SMALL_TREES, num_leaves_to_search=1))
  found = index.search(queries_BxE, num_passages + 5)
  np.testing.assert_array_equal(
    np.sort(found.ids_BxK[:, :num_passages]), [np.arange(num_passages)] * 64
  )
  np.testing.assert_array_equal(found.ids_BxK[:, num_passages:], -2)
  np.testing.assert_array_equal(found.scores_BxK[:, num_passages:], -np.inf)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda arrays: {"faiss_index": arrays["faiss_index"][:-100]}, "FAISS cannot read a shard"),
    (lambda arrays: {"embeddings": arrays["embeddings"][1:]}, r"of \(99, 32\) embeddings has"),
    (lambda arrays: {"scann_config.pb": np.zeros(3)}, "has arrays"),
  ],
)
def test_arrays_that_do_not_belong_together_are_refused(change, message):
  embeddings_NxE, _ = clustered(100)
  config = SMALL_TREES.for_corpus(100)
  (arrays,) = assembly.build_shards(embeddings_NxE, config=config)
  with pytest.raises(ValueError, match=message):
    faiss_searcher.load_shard({**arrays, **change(arrays)}, config=config)


def test_embeddings_that_are_not_numbers_are_refused():
  embeddings_NxE, _ = clustered(100)
  embeddings_NxE[[7, 9], 3] = np.nan
  with pytest.raises(ValueError, match=r"2 passage embeddings \(the first in row 7\)"):
    build(embeddings_NxE, SMALL_TREES)
