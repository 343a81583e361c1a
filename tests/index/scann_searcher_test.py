"""ScaNN shards: recall, serialisation without trust, corpora of every size."""

import concurrent.futures
import dataclasses
import os
import pickle

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import assembly, exact_searcher, scann_searcher, searcher
from tests.clustered import clustered

SMALL_TREES = searcher.SearcherConfig(kind="scann", min_passages_for_tree=64, threads=2)


def build(embeddings_NxE, config):
  config = config.for_corpus(len(embeddings_NxE))
  shards = assembly.build_shards(embeddings_NxE, config=config)
  return assembly.assemble(shards, config=config), shards, config


@pytest.mark.parametrize("num_shards", [1, 3])
def test_finds_nearly_what_exact_search_finds_on_clustered_embeddings(num_shards, float_tolerance):
  embeddings_NxE, queries_BxE = clustered(9000, num_queries=256)
  # Several threads find the leaves, which differ from run to run, and recall with them.
  config = searcher.SearcherConfig(
    kind="scann", num_shards=num_shards, num_leaves_to_search=48, min_passages_for_tree=2000
  )
  index, shards, _ = build(embeddings_NxE, config)
  assert "hashed_dataset.npy" in shards[0]  # a tree, not brute force
  exact = exact_searcher.ExactSearcher(embeddings_NxE).search(queries_BxE, 10)
  found = index.search(queries_BxE, 10)
  assert searcher.recall_at_k(found.ids_BxK, exact.ids_BxK) >= 0.95
  true_BxK = np.einsum("BE,BKE->BK", queries_BxE, embeddings_NxE[found.ids_BxK])
  np.testing.assert_allclose(found.scores_BxK, true_BxK, rtol=float_tolerance(depth=32, scale=4))
  assert (np.diff(found.scores_BxK) <= 0).all()
  assert found.ids_BxK.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_brute_force_shards_equal_exact_search_of_the_unsharded_corpus(dtype, float_tolerance):
  embeddings_NxE, queries_BxE = clustered(1000, dtype=dtype)
  config = searcher.SearcherConfig(kind="scann", num_shards=3)
  index, shards, _ = build(embeddings_NxE, config)
  assert set(shards[0]) == {"embeddings", "scann_config.pb"}
  exact = exact_searcher.ExactSearcher(embeddings_NxE).search(queries_BxE, 20)
  found = index.search(queries_BxE, 20)
  np.testing.assert_array_equal(found.ids_BxK, exact.ids_BxK)
  np.testing.assert_allclose(
    found.scores_BxK, exact.scores_BxK, rtol=float_tolerance(depth=32, scale=4)
  )


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_k_as_large_as_the_corpus_returns_all_of_it(num_shards):
  embeddings_NxE, queries_BxE = clustered(400)
  config = dataclasses.replace(SMALL_TREES, num_shards=num_shards, num_leaves_to_search=1)
  index, *_ = build(embeddings_NxE, config)
  found = index.search(queries_BxE, 405)
  np.testing.assert_array_equal(np.sort(found.ids_BxK[:, :400]), [np.arange(400)] * 64)
  np.testing.assert_array_equal(found.ids_BxK[:, 400:], -2)
  np.testing.assert_array_equal(found.scores_BxK[:, 400:], -np.inf)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_shard_survives_its_arrays(dtype):
  embeddings_NxE, queries_BxE = clustered(800, dtype=dtype)
  config = SMALL_TREES.for_corpus(800)
  shard = scann_searcher.build_shard(embeddings_NxE, config=config)
  arrays = shard.to_arrays(embeddings_NxE)
  assert set(arrays) == {
    "embeddings",
    "scann_config.pb",
    "ah_codebook.pb",
    "serialized_partitioner.pb",
    "datapoint_to_token.npy",
    "hashed_dataset.npy",
  }
  assert sum(array.nbytes >= embeddings_NxE.nbytes for array in arrays.values()) == 1
  before = shard.search(queries_BxE, 10)
  after = scann_searcher.load_shard(arrays, config=config).search(queries_BxE, 10)
  np.testing.assert_array_equal(before.ids_BxK, after.ids_BxK)
  np.testing.assert_array_equal(before.scores_BxK, after.scores_BxK)


class Bomb:
  def __reduce__(self):
    return os.mkdir, (os.environ["REALM_TEST_BOMB"],)


@pytest.mark.parametrize("name", ["scann_docids.pkl", "../scann_docids.pkl", "scann_assets.pbtxt"])
def test_arrays_that_scann_would_trust_are_refused(name, tmp_path, monkeypatch):
  monkeypatch.setenv("REALM_TEST_BOMB", str(tmp_path / "exploded"))
  embeddings_NxE, _ = clustered(30)
  config = searcher.SearcherConfig(kind="scann").for_corpus(30)
  arrays = scann_searcher.build_shard(embeddings_NxE, config=config).to_arrays(embeddings_NxE)
  arrays[name] = np.frombuffer(pickle.dumps(Bomb()), np.uint8)
  with pytest.raises(ValueError, match="has unknown arrays"):
    scann_searcher.load_shard(arrays, config=config)
  assert not (tmp_path / "exploded").exists()
  pickle.loads(arrays[name].tobytes())
  assert (tmp_path / "exploded").exists()  # the bomb was live


TOKENS, HASHES = "datapoint_to_token.npy", "hashed_dataset.npy"


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    (HASHES, lambda a: a[:-1], r"is uint8 \(99, 16\) instead of uint8 \(100, 16\)"),
    (HASHES, lambda a: a[:, 1:], r"\(100, 15\) instead of"),
    (HASHES, lambda a: a.astype(np.int16), "is int16"),
    (HASHES, lambda a: np.where(a == a[3, 2], 16, a).astype(np.uint8), " to 16; its values"),
    (TOKENS, lambda a: a[1:], r"\(99,\) instead of int32 \(100,\)"),
    (TOKENS, lambda a: a.astype(np.int64), "is int64"),
    (TOKENS, lambda a: a - 1, "holds -1 to"),
    (TOKENS, lambda a: a + 90, "its values lie in 0 to"),
  ],
)
def test_arrays_that_scann_would_read_past_are_refused(name, change, message):
  embeddings_NxE, _ = clustered(100)
  config = SMALL_TREES.for_corpus(100)
  arrays = scann_searcher.build_shard(embeddings_NxE, config=config).to_arrays(embeddings_NxE)
  scann_searcher.load_shard(arrays, config=config)
  with pytest.raises(ValueError, match=message):
    scann_searcher.load_shard({**arrays, name: change(arrays[name])}, config=config)


def test_embeddings_on_which_scann_would_end_the_process_are_refused():
  embeddings_NxE, _ = clustered(100)
  embeddings_NxE[[7, 9], 3] = np.nan
  with pytest.raises(ValueError, match=r"2 passage embeddings \(the first in row 7\)"):
    scann_searcher.build_shard(embeddings_NxE, config=SMALL_TREES.for_corpus(100))
  with pytest.raises(ValueError, match="are float64"):
    scann_searcher.build_shard(np.zeros((5, 4)), config=SMALL_TREES.for_corpus(5))


def test_threads_do_not_change_the_answer():
  embeddings_NxE, queries_BxE = clustered(600, num_queries=200)
  config = dataclasses.replace(SMALL_TREES, num_shards=3).for_corpus(600)
  shards = assembly.build_shards(embeddings_NxE, config=config)
  answers = [
    assembly.assemble(shards, config=dataclasses.replace(config, threads=threads)).search(
      queries_BxE, 10
    )
    for threads in (1, 2, 8)
  ]
  index = assembly.assemble(shards, config=dataclasses.replace(config, threads=8))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:  # several searches at once
    answers += pool.map(lambda _: index.search(queries_BxE, 10), range(8))
  for answer in answers[1:]:
    np.testing.assert_array_equal(answers[0].ids_BxK, answer.ids_BxK)
    np.testing.assert_array_equal(answers[0].scores_BxK, answer.scores_BxK)
