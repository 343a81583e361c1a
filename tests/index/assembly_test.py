"""From embeddings through a published generation to a searcher, with the same answers."""

import dataclasses
import sys

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import assembly, generations
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.device_searcher import DeviceSearcher
from realm_jax.index.vectors.exact_searcher import ExactSearcher

NUM_PASSAGES = 600


def embeddings(dtype=np.float32):
  return np.random.default_rng(0).standard_normal((NUM_PASSAGES, 16)).astype(dtype)


def publish(root, *, config, embeddings_NxE):
  config = config.for_corpus(NUM_PASSAGES)
  shards = assembly.build_shards(embeddings_NxE, config=config)
  manifest = generations.Manifest(
    training_step=0,
    parameters_digest="",
    corpus_fingerprint="",
    vocabulary_digest="",
    num_passages=NUM_PASSAGES,
    embedding_size=16,
    dtype=embeddings_NxE.dtype.name,
    searcher=dataclasses.asdict(config),
  )
  generations.publish(str(root), 3, shards, manifest=manifest, keep=1)
  return assembly.assemble(shards, config=config)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
  "kind", ["exact", "scann", pytest.param("faiss", marks=pytest.mark.interop), "device"]
)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_published_searcher_gives_the_same_answers(tmp_path, kind, num_shards, dtype):
  if kind == "faiss":
    pytest.importorskip("faiss", reason="the extra faiss is not installed")
  config = searcher.SearcherConfig(kind=kind, num_shards=num_shards, min_passages_for_tree=100)
  embeddings_NxE = embeddings(dtype)
  before = publish(tmp_path, config=config, embeddings_NxE=embeddings_NxE)
  queries_BxE = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)
  expected = before.search(queries_BxE, 9)
  ways = [{}]
  if (kind, num_shards, dtype) == ("scann", 3, np.float32):  # over its one process, and in another
    ways += [{"spread": True}, {"in_subprocess": True}]
  for where in ways:
    after = assembly.load_searcher(str(tmp_path), 3, **where)
    found = after.search(queries_BxE, 9)
    np.testing.assert_array_equal(found.ids_BxK, expected.ids_BxK)
    np.testing.assert_array_equal(found.scores_BxK, expected.scores_BxK)
    if not where:
      names = {"exact": "ExactSearcher", "device": "DeviceSearcher"}
      assert type(after).__name__ == names.get(kind, "ShardedSearcher")


def test_a_generation_built_for_scann_can_be_searched_exactly(tmp_path):
  config = searcher.SearcherConfig(
    kind="scann",
    num_shards=2,
    min_passages_for_tree=100,
    num_leaves_to_search=1,
    reorder_candidates=300,
  )
  embeddings_NxE = embeddings()
  publish(tmp_path, config=config, embeddings_NxE=embeddings_NxE)
  queries_BxE = np.random.default_rng(1).standard_normal((30, 16)).astype(np.float32)
  expected = np.argsort(-(queries_BxE @ embeddings_NxE.T), axis=1, kind="stable")[:, :10]
  for make in (ExactSearcher, DeviceSearcher):
    exact = assembly.load_searcher(str(tmp_path), 3, make=make).search(queries_BxE, 10)
    np.testing.assert_array_equal(exact.ids_BxK, expected)
  index = assembly.load_searcher(str(tmp_path), 3)

  def recall(index):
    return searcher.recall_at_k(index.search(queries_BxE, 10).ids_BxK, expected)

  assert recall(index) < 0.9
  assert recall(index.with_leaves(1000)) == 1.0


@pytest.mark.parametrize("library", ["scann", "faiss"])
def test_a_library_that_is_missing_is_named(monkeypatch, library):
  config = searcher.SearcherConfig(kind=library).for_corpus(NUM_PASSAGES)
  monkeypatch.delitem(sys.modules, f"realm_jax.index.vectors.{library}_searcher", raising=False)
  for module in [name for name in sys.modules if name.partition(".")[0] == library]:
    monkeypatch.delitem(sys.modules, module)
  monkeypatch.setitem(sys.modules, library, None)
  with pytest.raises(ValueError, match=f'kind="{library}" cannot be imported .*; install'):
    assembly.build_shards(embeddings(), config=config)
