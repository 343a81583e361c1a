"""Trivial passages: all those with a query's sentence, and no others."""

import numpy as np
import pytest

from realm_jax.retrieval import trivial_passages

PAD = 6  # of a passage, around what is asked for


def find(store, queries):
  ids_BxR = np.tile(np.arange(-2, len(store)), (len(queries.source_uid_B), 1))
  return trivial_passages.find(queries, ids_BxR, store=store).tolist()


@pytest.mark.parametrize(
  ("body", "holds"),
  [
    ([20, 30, 21, 31], True),
    ([PAD, 20, 30, 21, 31, PAD], True),
    ([20, 30, 20, 30, 21, 31], True),  # begins anew in the middle
    ([20, 30, 21], False),
    ([30, 21, 31], False),
    ([20, 30, PAD, 21, 31], False),
    ([31, 21, 30, 20], False),
    ([], False),
  ],
)
def test_a_passage_holds_a_sentence_whole_and_in_order(make_store, make_queries, body, holds):
  store = make_store(([5], body), ([20, 30, 21, 31], [PAD]))  # a title gives nothing away
  queries = make_queries(([20, 30, 21, 31], 999))
  assert find(store, queries) == [[False, False, holds, False]]


def test_the_source_is_trivial_without_its_sentence_and_nothing_is_without_a_source(
  make_store, make_queries
):
  store = make_store(([5], [20, 30]), ([5], [PAD]))
  queries = make_queries(([20, 30], 101), ([20, 30], 0))
  assert find(store, queries) == [[False, False, True, True], [False] * 4]


def test_all_passages_of_a_large_random_batch_are_told_apart(make_store, make_queries):
  random = np.random.default_rng(0)
  bodies = [random.integers(5, 9, random.integers(0, 30)).tolist() for _ in range(60)]
  sentences = [random.integers(5, 9, random.integers(1, 7)).tolist() for _ in range(40)]
  store = make_store(*(([5], body) for body in bodies))
  queries = make_queries(*((sentence, 999) for sentence in sentences), length=9)

  def text(ids):
    return " " + " ".join(map(str, ids)) + " "

  expected = [[False, False, *(text(s) in text(b) for b in bodies)] for s in sentences]
  assert find(store, queries) == expected
  assert 0.1 < np.mean(expected) < 0.9
