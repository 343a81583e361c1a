import jax
import numpy as np
import pytest
from scipy import special

from realm_jax.objectives import inverse_cloze

RANDOM = np.random.default_rng(0)
QUERY_BxE, PASSAGE_BxE = RANDOM.normal(size=(2, 6, 4)).astype(np.float32)


@pytest.fixture
def atol(float_tolerance):
  """Of scores, each a sum over the embedding, and of sums over the batch, twice."""
  return float_tolerance(depth=4 + 2 * 6, scale=8)


def mean_loss(*arguments):
  return inverse_cloze.inverse_cloze(*arguments)["loss"].value


def test_loss_and_gradient_equal_brute_force(atol):
  def reference(query_BxE):
    scores_BxB = query_BxE @ PASSAGE_BxE.T.astype(np.float64)
    return -np.mean(np.diagonal(special.log_softmax(scores_BxB, axis=1)))

  loss, gradient_BxE = jax.value_and_grad(mean_loss)(QUERY_BxE, PASSAGE_BxE)
  np.testing.assert_allclose(loss, reference(QUERY_BxE), atol=atol)
  for index in ((0, 0), (3, 2), (5, 3)):
    step = np.zeros((6, 4))
    step[index] = 1e-5
    slope = (reference(QUERY_BxE + step) - reference(QUERY_BxE - step)) / 2e-5
    np.testing.assert_allclose(gradient_BxE[index], slope, atol=atol)


def test_padding_is_neither_counted_nor_a_negative(atol):
  expected = inverse_cloze.inverse_cloze(QUERY_BxE[:4], PASSAGE_BxE[:4])
  weights_B = np.array([1, 1, 1, 1, 0, 0], np.float32)
  found = inverse_cloze.inverse_cloze(QUERY_BxE, PASSAGE_BxE, weights_B)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), found, expected)


def test_only_padding_is_zero_in_loss_and_gradient():
  weights_B = np.zeros(6, np.float32)
  loss, gradient_BxE = jax.value_and_grad(mean_loss)(QUERY_BxE, PASSAGE_BxE, weights_B)
  assert loss == 0
  np.testing.assert_array_equal(gradient_BxE, 0)


def test_figures(atol):
  """Own passages ranked first, second and third of three."""
  query_BxE = np.eye(3, dtype=np.float32)
  passage_BxE = np.array([[9, 2, 3], [1, 1, 2], [0, 0, 1]], np.float32)
  figures = inverse_cloze.inverse_cloze(query_BxE, passage_BxE)
  np.testing.assert_allclose(figures["accuracy"].value, 1 / 3, atol=atol)
  mean_reciprocal_rank = (1 + 1 / 2 + 1 / 3) / 3
  np.testing.assert_allclose(figures["mean_reciprocal_rank"].value, mean_reciprocal_rank, atol=atol)


def test_embeddings_that_are_all_alike_are_not_right(atol):
  alike_BxE = np.ones((4, 3), np.float32)
  figures = inverse_cloze.inverse_cloze(alike_BxE, alike_BxE)
  np.testing.assert_allclose(figures["loss"].value, np.log(4), atol=atol)
  assert figures["accuracy"].value == 0
  np.testing.assert_allclose(figures["mean_reciprocal_rank"].value, 1 / 4, atol=atol)
