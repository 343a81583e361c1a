"""Settings, exact merging of shards, recall."""

from importlib.util import find_spec

import numpy as np
import pytest

from realm_jax.devices import datatypes
from realm_jax.index.vectors import searcher


def results(ids, scores):
  return datatypes.SearchResults(np.array(ids, np.int32), np.array(scores, np.float32))


def test_merge_puts_empty_slots_last_and_fills_up_to_k():
  left = results([[1, -2]], [[-5, -np.inf]])
  right = results([[3]], [[2]])
  merged = searcher.merge([left, right], 5)
  np.testing.assert_array_equal(merged.ids_BxK, [[3, 1, -2, -2, -2]])
  np.testing.assert_array_equal(merged.scores_BxK, [[2, -5, -np.inf, -np.inf, -np.inf]])
  assert merged.ids_BxK.dtype == np.int32
  assert merged.scores_BxK.dtype == np.float32


def test_merging_the_shards_equals_sorting_the_whole():
  rng = np.random.default_rng(0)
  scores_BxN = rng.integers(0, 20, (5, 60)).astype(np.float32)  # integers: many equal scores
  shards = []
  for rows in searcher.split_rows(60, 4):
    order_BxK = np.argsort(-scores_BxN[:, rows], axis=1, kind="stable")[:, :8]
    scores_BxK = np.take_along_axis(scores_BxN[:, rows], order_BxK, axis=1)
    shards.append(results(order_BxK + rows.start, scores_BxK))
  expected_BxK = np.argsort(-scores_BxN, axis=1, kind="stable")[:, :8]
  np.testing.assert_array_equal(searcher.merge(shards, 8).ids_BxK, expected_BxK)


@pytest.mark.parametrize(("num_rows", "num_parts"), [(10, 3), (3, 3), (100, 7), (1, 1)])
def test_split_rows_covers_every_row_once_in_order(num_rows, num_parts):
  parts = [np.arange(num_rows)[part] for part in searcher.split_rows(num_rows, num_parts)]
  np.testing.assert_array_equal(np.concatenate(parts), np.arange(num_rows))
  sizes = [len(part) for part in parts]
  assert len(sizes) == num_parts
  assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("num_shards", "count"), [(3, 2), (4, 4), (7, 3), (5, 1)])
def test_processes_have_consecutive_shards_that_are_those_of_the_whole(num_shards, count):
  parts = [
    searcher.own_part(100, num_shards=num_shards, index=i, count=count) for i in range(count)
  ]
  np.testing.assert_array_equal(
    np.concatenate([np.arange(100)[part.rows] for part in parts]), np.arange(100)
  )
  whole = searcher.split_rows(100, num_shards)
  assert [shard for part in parts for shard in whole[part.shards]] == whole
  for part in parts:
    assert (part.rows.start, part.rows.stop) == (
      whole[part.shards][0].start,
      whole[part.shards][-1].stop,
    )


def test_fewer_shards_than_processes_are_refused():
  with pytest.raises(ValueError, match="1 shards cannot be spread over 2 processes; build .*=2 or"):
    searcher.own_part(100, num_shards=1, index=0, count=2)


def test_recall_counts_found_answers_and_leaves_out_empty_slots():
  exact = np.array([[1, 2, 3], [4, -2, -2]])
  approximate = np.array([[3, 9, 1], [-2, -2, 4]])
  assert searcher.recall_at_k(approximate, exact) == 0.75
  with pytest.raises(ValueError, match="at least one query"):
    searcher.recall_at_k(approximate[:0], exact[:0])


def test_settings_are_derived_from_the_number_of_passages():
  config = searcher.SearcherConfig()
  assert config.for_corpus(4095).kind == "exact"
  assert config.for_corpus(4096).kind == ("faiss" if find_spec("faiss") else "scann")
  assert config.for_corpus(1_000_000).num_shards == 1
  assert config.for_corpus(1_000_001).num_shards == 2
  assert config.for_corpus(1).num_shards == 1
  small, large = config.for_corpus(15_000), config.for_corpus(13_000_000)
  assert (small.num_leaves, small.num_leaves_to_search) == (245, None)
  assert (small.target_recall, config.for_corpus(4095).target_recall) == (0.98, None)
  assert large.num_shards == 13


def test_a_search_is_approximate_where_it_has_a_tree_or_a_target():
  def approximate(num_passages, **settings):
    config = searcher.SearcherConfig(**settings).for_corpus(num_passages)
    return config.is_approximate(num_passages)

  assert approximate(4096)
  assert not approximate(4095)
  assert approximate(8191, num_shards=2)
  assert not approximate(8190, num_shards=2)
  assert not approximate(10_000, kind="exact")
  assert not approximate(10_000, kind="device")
  assert approximate(100, kind="device", target_recall=0.9)


def test_settings_given_by_hand_stay():
  config = searcher.SearcherConfig(
    kind="scann", num_shards=3, num_leaves=10, num_leaves_to_search=4, reorder_candidates=50
  )
  derived = config.for_corpus(100)
  assert derived.kind == "scann"
  assert (derived.num_shards, derived.num_leaves) == (3, 10)
  assert (derived.num_leaves_to_search, derived.reorder_candidates) == (4, 50)
  assert derived.for_corpus(100) == derived


def test_an_empty_corpus_is_refused():
  with pytest.raises(ValueError, match="at least one passage"):
    searcher.SearcherConfig().for_corpus(0)


@pytest.mark.parametrize(
  ("queries", "k", "message"),
  [
    (np.zeros((2, 4)), 0, "k=0 passages"),
    (np.zeros((2, 5)), 3, r"\(2, 5\) do not fit an index of width 4"),
    (np.zeros(4), 3, r"\(4,\) do not fit"),
    (np.zeros((0, 4)), 3, r"\(0, 4\) do not fit"),
    (np.full((2, 4), np.nan), 3, "NaN or infinity"),
  ],
)
def test_queries_that_cannot_be_searched_are_refused(queries, k, message):
  with pytest.raises(ValueError, match=message):
    searcher.check_queries(queries, k, embedding_size=4)
