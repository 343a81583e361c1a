import itertools

import jax
import numpy as np
import pytest

from realm_jax.answering.mask_decoding import read


def problem(seed, *, masks, vocabulary=5, passages=4, queries=3):
  draw = np.random.default_rng(seed)
  scores_BxK = draw.normal(size=(queries, passages)).astype(np.float32)
  logits_BxKxMxV = 2 * draw.normal(size=(queries, passages, masks, vocabulary)).astype(np.float32)
  valid_BxK = draw.random((queries, passages)) < 0.7
  valid_BxK[:, 0] = True
  weights_BxM = np.ones((queries, masks), np.float32)
  return scores_BxK, logits_BxKxMxV, weights_BxM, valid_BxK


def reading(scores_BxK, logits_BxKxMxV, weights_BxM, valid_BxK):
  found = jax.jit(read)(scores_BxK, logits_BxKxMxV, weights_BxM, valid_BxK=valid_BxK)
  return jax.tree.map(np.asarray, found)


def brute_force(scores_K, logits_KxMxV, weights_M, valid_K, answer):
  """p(z|x) and p(y|z,x) in float64, term by term."""
  weight_K = np.where(valid_K, np.exp(scores_K.astype(float)), 0)
  prior_K = weight_K / weight_K.sum()
  likelihood_K = np.ones(len(scores_K))
  for k in range(len(scores_K)):
    for m, word in enumerate(answer):
      if weights_M[m]:
        exponentials = np.exp(logits_KxMxV[k, m].astype(float))
        likelihood_K[k] *= exponentials[word] / exponentials.sum()
  return prior_K, likelihood_K


@pytest.fixture
def rtol(float_tolerance):
  """For a probability e^l: sums over words, masks and passages, with a logarithm of up to 16."""
  return float_tolerance(depth=5 + 3 + 4, scale=16)


@pytest.mark.parametrize("masks", [1, 3])
def test_probabilities_equal_brute_force(masks, rtol):
  given = problem(masks, masks=masks)
  found = reading(*given)
  for b, row in enumerate(zip(*given, strict=True)):
    for c, answer in enumerate(found.answers_BxCxM[b]):
      prior_K, likelihood_K = brute_force(*row, answer)
      np.testing.assert_allclose(np.exp(found.log_probs_BxCxK[b, c]), likelihood_K, rtol=rtol)
      np.testing.assert_allclose(
        np.exp(found.log_probs_BxC[b, c]), prior_K @ likelihood_K, rtol=rtol
      )
      np.testing.assert_allclose(
        np.exp(found.retrieval_log_probs_BxK[b]), prior_K, rtol=rtol, atol=rtol
      )


@pytest.mark.parametrize("alternatives", [1, 3])
def test_an_answer_has_only_words_that_may_be_in_one_and_the_probability_that_it_has(alternatives):
  scores_BxK, logits_BxKxMxV, weights_BxM, valid_BxK = problem(0, masks=2)
  logits_BxKxMxV[..., [0, 3]] += 9  # likelier than any word
  words_V = np.array([False, True, True, False, True])
  given = {"valid_BxK": valid_BxK, "alternatives": alternatives}
  found = read(scores_BxK, logits_BxKxMxV, weights_BxM, words_V=words_V, **given)
  assert set(np.unique(found.answers_BxCxM)) <= {1, 2, 4}
  others = read(scores_BxK, logits_BxKxMxV, weights_BxM, **given)
  assert np.unique(others.answers_BxCxM[:, 0]).tolist() == [0, 3]
  assert (found.log_probs_BxC[:, 0] < others.log_probs_BxC[:, 0] - 5).all()


def test_one_wordpiece_is_the_best_of_the_vocabulary(rtol):
  for seed in range(20):
    given = problem(seed, masks=1)
    found = reading(*given)
    for b, row in enumerate(zip(*given, strict=True)):
      marginals = [np.dot(*brute_force(*row, [word])) for word in range(5)]
      assert found.answers_BxCxM[b, 0, 0] == np.argmax(marginals)
      np.testing.assert_allclose(np.exp(found.log_probs_BxC[b, 0]), max(marginals), rtol=rtol)


def test_the_best_of_several_wordpieces_beats_every_other_candidate(rtol):
  better_than_word_by_word = 0
  for seed in range(20):
    given = problem(seed, masks=2)
    found = reading(*given)
    assert (np.diff(found.log_probs_BxC, axis=1) <= rtol).all()
    for b, row in enumerate(zip(*given, strict=True)):
      scores_K, logits_KxMxV, weights_M, valid_K = row
      marginal = {
        answer: np.dot(*brute_force(*row, answer))
        for answer in itertools.product(range(5), repeat=2)
      }
      prior_K, _ = brute_force(*row, [0, 0])
      together_MxV = np.einsum("K,KMV->MV", prior_K, np.asarray(jax.nn.softmax(logits_KxMxV)))
      word_by_word = tuple(together_MxV.argmax(-1).tolist())
      candidates = {tuple(a) for a in logits_KxMxV.argmax(-1).tolist()} | {word_by_word}
      assert {tuple(a) for a in found.answers_BxCxM[b].tolist()} == candidates
      best = max(candidates, key=marginal.get)
      assert tuple(found.answers_BxCxM[b, 0].tolist()) == best
      better_than_word_by_word += marginal[best] > marginal[word_by_word]
  assert better_than_word_by_word > 0
