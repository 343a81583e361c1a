"""Marginals with and without a passage, against sums written out."""

import numpy as np
import pytest

from realm_jax.answering.explanation import leave_one_out

SCORES_K = np.log([0.1, 0.5, 0.4, 0.2])  # null, two passages, the reserve
PROBS_CxK = np.array([[0.1, 0.9, 0.2, 0.7], [0.6, 0.05, 0.7, 0.1]])
ALL_K = np.ones(4, bool)
CORPUS_K = np.array([False, True, True, True])


def test_the_reserve_takes_no_part_until_a_passage_is_gone():
  weights = leave_one_out(SCORES_K, np.log(PROBS_CxK), valid_K=ALL_K, corpus_K=CORPUS_K)
  np.testing.assert_allclose(weights.prior_K, [0.1, 0.5, 0.4, 0], rtol=1e-6)
  expected = PROBS_CxK[:, :3] @ [0.1, 0.5, 0.4]
  np.testing.assert_allclose(np.exp(weights.log_probs_C), expected, rtol=1e-6)
  np.testing.assert_allclose(np.exp(weights.log_probs_without_KxC[3]), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ("slot", "left", "prior"),
  [
    (0, [1, 2], [5 / 9, 4 / 9]),  # the null passage is in no corpus: nothing replaces it
    (1, [0, 2, 3], [1 / 7, 4 / 7, 2 / 7]),
    (2, [0, 1, 3], [1 / 8, 5 / 8, 2 / 8]),
  ],
)
def test_a_passage_taken_away_makes_room_for_the_reserve(slot, left, prior):
  weights = leave_one_out(SCORES_K, np.log(PROBS_CxK), valid_K=ALL_K, corpus_K=CORPUS_K)
  np.testing.assert_allclose(
    np.exp(weights.log_probs_without_KxC[slot]), PROBS_CxK[:, left] @ prior, rtol=1e-6
  )


def test_the_best_passage_alone_may_decide():
  weights = leave_one_out(
    SCORES_K, np.log(PROBS_CxK), valid_K=ALL_K, corpus_K=CORPUS_K, over_passages="best"
  )
  np.testing.assert_allclose(np.exp(weights.log_probs_C), [0.5 * 0.9, 0.4 * 0.7], rtol=1e-6)
  np.testing.assert_allclose(
    np.exp(weights.log_probs_without_KxC[1]), [0.2 / 0.7 * 0.7, 0.4 / 0.7 * 0.7], rtol=1e-6
  )
