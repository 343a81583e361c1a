"""Marginals with and without a passage, against sums written out."""

import numpy as np
import pytest

from realm_jax.inference.explanation import find_subsequences, unique_rows, weigh

SCORES_K = np.log([0.1, 0.5, 0.4, 0.2])  # null, two passages, the reserve
PROBS_CxK = np.array([[0.1, 0.9, 0.2, 0.7], [0.6, 0.05, 0.7, 0.1]])
ALL_K = np.ones(4, bool)
CORPUS_K = np.array([False, True, True, True])


def test_the_reserve_takes_no_part_until_a_passage_is_gone():
  weighed = weigh(SCORES_K, np.log(PROBS_CxK), valid_K=ALL_K, corpus_K=CORPUS_K)
  np.testing.assert_allclose(weighed.prior_K, [0.1, 0.5, 0.4, 0], rtol=1e-6)
  expected = PROBS_CxK[:, :3] @ [0.1, 0.5, 0.4]
  np.testing.assert_allclose(np.exp(weighed.log_probs_C), expected, rtol=1e-6)
  np.testing.assert_allclose(np.exp(weighed.log_probs_without_KxC[3]), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ("slot", "left", "prior"),
  [
    (0, [1, 2], [5 / 9, 4 / 9]),  # the null passage is in no corpus: nothing replaces it
    (1, [0, 2, 3], [1 / 7, 4 / 7, 2 / 7]),
    (2, [0, 1, 3], [1 / 8, 5 / 8, 2 / 8]),
  ],
)
def test_a_passage_taken_away_makes_room_for_the_reserve(slot, left, prior):
  weighed = weigh(SCORES_K, np.log(PROBS_CxK), valid_K=ALL_K, corpus_K=CORPUS_K)
  np.testing.assert_allclose(
    np.exp(weighed.log_probs_without_KxC[slot]), PROBS_CxK[:, left] @ prior, rtol=1e-6
  )


def test_a_small_corpus_leaves_no_reserve():
  weighed = weigh(
    SCORES_K, np.log(PROBS_CxK), valid_K=np.array([True, True, False, False]), corpus_K=CORPUS_K
  )
  np.testing.assert_allclose(weighed.prior_K, [1 / 6, 5 / 6, 0, 0], rtol=1e-6)
  np.testing.assert_allclose(np.exp(weighed.log_probs_without_KxC[1]), PROBS_CxK[:, 0], rtol=1e-6)


def test_without_any_passage_nothing_is_likely():
  weighed = weigh(
    SCORES_K, np.log(PROBS_CxK), valid_K=np.array([True, False, False, False]), corpus_K=CORPUS_K
  )
  assert np.isneginf(weighed.log_probs_without_KxC[0]).all()


def test_unique_rows_keep_the_first_of_each_kind():
  rows = np.array([[1, 2], [3, 4], [1, 2], [3, 5], [3, 4]])
  assert unique_rows(rows).tolist() == [0, 1, 3]


@pytest.mark.parametrize(
  ("ids", "wanted", "places"),
  [
    ([1, 2, 3, 1, 2], [1, 2], [0, 3]),
    ([7, 7, 7, 7], [7, 7], [0, 2]),
    ([1, 2], [1, 2, 3], []),
    ([1, 2], [], []),
    ([1, 1, 2], [1, 2], [1]),
  ],
)
def test_finds_where_an_answer_stands(ids, wanted, places):
  assert find_subsequences(ids, wanted) == places
