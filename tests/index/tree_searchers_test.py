"""ScaNN and FAISS: recall, corpora of every size, and arrays that do not belong to a shard."""

import concurrent.futures
import dataclasses
import importlib
import os
import pickle

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import assembly
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from tests.clustered import clustered

each_kind = pytest.mark.parametrize(
  "kind", ["scann", pytest.param("faiss", marks=pytest.mark.interop)]
)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
TOKENS, HASHES = "datapoint_to_token.npy", "hashed_dataset.npy"
OF_SCANN = {"scann_config.pb", "ah_codebook.pb", "serialized_partitioner.pb", TOKENS, HASHES}


def library(kind):
  if kind == "faiss":
    pytest.importorskip("faiss", reason="the extra faiss is not installed")
  return importlib.import_module(f"realm_jax.index.vectors.{kind}_searcher")


def small_trees(kind, **settings):
  library(kind)
  settings = {"min_passages_for_tree": 64, "threads": 2, **settings}
  return searcher.SearcherConfig(kind=kind, **settings)


def build(embeddings_NxE, config):
  config = config.for_corpus(len(embeddings_NxE))
  shards = assembly.build_shards(embeddings_NxE, config=config)
  return assembly.assemble(shards, config=config), shards


@each_kind
@each_dtype
@pytest.mark.parametrize("num_shards", [1, 3])
def test_it_finds_nearly_what_exact_search_finds(kind, num_shards, dtype, float_tolerance):
  embeddings_NxE, queries_BxE = clustered(9000, num_queries=256, dtype=dtype)
  # Several threads find the leaves, which differ from run to run, and recall with them.
  config = small_trees(
    kind, num_shards=num_shards, num_leaves_to_search=48, min_passages_for_tree=2000, threads=None
  )
  index, shards = build(embeddings_NxE, config)
  of_tree = {"scann": OF_SCANN, "faiss": {"faiss_index"}}[kind]
  assert set(shards[0]) == {"embeddings", *of_tree}, "a tree, and one copy of the embeddings"
  exact = ExactSearcher(embeddings_NxE).search(queries_BxE, 10)
  found = index.search(queries_BxE, 10)
  recall = searcher.recall_at_k(found.ids_BxK, exact.ids_BxK)
  assert recall >= 0.95
  fewer = index.with_leaves(1).search(queries_BxE, 10)
  assert searcher.recall_at_k(fewer.ids_BxK, exact.ids_BxK) < recall
  true_BxK = np.einsum("BE,BKE->BK", queries_BxE, embeddings_NxE[found.ids_BxK].astype(np.float32))
  tolerance = float_tolerance(depth=32, scale=4)
  np.testing.assert_allclose(found.scores_BxK, true_BxK, rtol=tolerance)
  assert (np.diff(found.scores_BxK) <= 0).all() and found.ids_BxK.dtype == np.int32


@each_dtype
def test_brute_force_shards_equal_exact_search_of_the_unsharded_corpus(dtype, float_tolerance):
  embeddings_NxE, queries_BxE = clustered(1000, dtype=dtype)
  index, shards = build(embeddings_NxE, searcher.SearcherConfig(kind="scann", num_shards=3))
  assert set(shards[0]) == {"embeddings", "scann_config.pb"}
  exact = ExactSearcher(embeddings_NxE).search(queries_BxE, 20)
  found = index.search(queries_BxE, 20)
  np.testing.assert_array_equal(found.ids_BxK, exact.ids_BxK)
  np.testing.assert_allclose(
    found.scores_BxK, exact.scores_BxK, rtol=float_tolerance(depth=32, scale=4)
  )


@each_kind
@pytest.mark.parametrize(
  ("num_passages", "num_shards"), [(1, 1), (63, 1), (64, 1), (400, 1), (400, 2)]
)
def test_a_k_above_the_corpus_returns_all_of_it(kind, num_passages, num_shards):
  embeddings_NxE, queries_BxE = clustered(num_passages)
  index, _ = build(embeddings_NxE, small_trees(kind, num_shards=num_shards, num_leaves_to_search=1))
  found = index.search(queries_BxE, num_passages + 5)
  np.testing.assert_array_equal(
    np.sort(found.ids_BxK[:, :num_passages]), [np.arange(num_passages)] * 64
  )
  np.testing.assert_array_equal(found.ids_BxK[:, num_passages:], -2)
  np.testing.assert_array_equal(found.scores_BxK[:, num_passages:], -np.inf)


class Bomb:
  def __reduce__(self):
    return os.mkdir, (os.environ["REALM_TEST_BOMB"],)


@pytest.mark.parametrize("name", ["scann_docids.pkl", "../scann_docids.pkl", "scann_assets.pbtxt"])
def test_arrays_that_scann_would_trust_are_refused(name, tmp_path, monkeypatch):
  monkeypatch.setenv("REALM_TEST_BOMB", str(tmp_path / "exploded"))
  config = searcher.SearcherConfig(kind="scann").for_corpus(30)
  (arrays,) = assembly.build_shards(clustered(30)[0], config=config)
  arrays[name] = np.frombuffer(pickle.dumps(Bomb()), np.uint8)
  with pytest.raises(ValueError, match="has unknown arrays"):
    assembly.assemble([arrays], config=config)
  assert not (tmp_path / "exploded").exists()
  pickle.loads(arrays[name].tobytes())
  assert (tmp_path / "exploded").exists()  # the bomb was live


def faiss(name, change, message):
  return pytest.param("faiss", name, change, message, marks=pytest.mark.interop)


@pytest.mark.parametrize(
  ("kind", "name", "change", "message"),
  [
    ("scann", HASHES, lambda a: a[:-1], r"is uint8 \(99, 16\) instead of uint8 \(100, 16\)"),
    ("scann", HASHES, lambda a: a[:, 1:], r"\(100, 15\) instead of"),
    ("scann", HASHES, lambda a: a.astype(np.int16), "is int16"),
    ("scann", HASHES, lambda a: np.where(a == a[3, 2], 16, a).astype(np.uint8), " to 16; its"),
    ("scann", TOKENS, lambda a: a[1:], r"\(99,\) instead of int32 \(100,\)"),
    ("scann", TOKENS, lambda a: a.astype(np.int64), "is int64"),
    ("scann", TOKENS, lambda a: a - a.min() - 1, "holds -1 to"),  # leaf 0 may be empty
    ("scann", TOKENS, lambda a: a + 90, "its values lie in 0 to"),
    faiss("faiss_index", lambda a: a[:-100], "FAISS cannot read a shard"),
    faiss("embeddings", lambda a: a[1:], r"of \(99, 32\) embeddings has"),
    faiss("scann_config.pb", lambda a: np.zeros(3), "has arrays"),
  ],
)
def test_arrays_that_do_not_belong_together_are_refused(kind, name, change, message):
  config = small_trees(kind).for_corpus(100)
  (arrays,) = assembly.build_shards(clustered(100)[0], config=config)
  assembly.assemble([arrays], config=config)
  with pytest.raises(ValueError, match=message):
    assembly.assemble([{**arrays, name: change(arrays.get(name))}], config=config)


@each_kind
def test_embeddings_that_are_not_numbers_are_refused(kind):
  embeddings_NxE, _ = clustered(100)
  embeddings_NxE[[7, 9], 3] = np.nan
  with pytest.raises(ValueError, match=r"2 passage embeddings \(the first in row 7\)"):
    build(embeddings_NxE, small_trees(kind))
  with pytest.raises(ValueError, match="are float64"):
    build(np.zeros((5, 4)), small_trees(kind))


def test_threads_do_not_change_the_answer():
  embeddings_NxE, queries_BxE = clustered(600, num_queries=200)
  config = small_trees("scann", num_shards=3).for_corpus(600)
  shards = assembly.build_shards(embeddings_NxE, config=config)
  searchers = {
    threads: assembly.assemble(shards, config=dataclasses.replace(config, threads=threads))
    for threads in (1, 2, 8)
  }
  answers = [index.search(queries_BxE, 10) for index in searchers.values()]
  with concurrent.futures.ThreadPoolExecutor(4) as pool:  # several searches at once
    answers += pool.map(lambda _: searchers[8].search(queries_BxE, 10), range(8))
  for answer in answers[1:]:
    np.testing.assert_array_equal(answers[0].ids_BxK, answer.ids_BxK)
    np.testing.assert_array_equal(answers[0].scores_BxK, answer.scores_BxK)
