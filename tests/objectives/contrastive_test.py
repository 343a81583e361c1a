import jax
import numpy as np
import pytest
from scipy import special

from realm_jax.objectives import contrastive as objective
from realm_jax.objectives.contrastive import compared_passages

contrastive = jax.jit(objective.contrastive)
RANDOM = np.random.default_rng(0)
QUERY_BxE, PASSAGE_BxE = RANDOM.normal(size=(2, 6, 4)).astype(np.float32)


@pytest.fixture
def atol(float_tolerance):
  """For scores, which are sums over the embedding, and two sums over the batch."""
  return float_tolerance(depth=4 + 2 * 6, scale=8)


def compared(weights_B=None, *, uids=range(1, 7)):
  """What each of six queries is compared with; all are real and different by default."""
  real_B = np.ones(6, bool) if weights_B is None else np.array(weights_B, bool)
  return compared_passages(real_B, np.array(uids, np.int32))


def mean_loss(query_BxE, passage_BxE, compared_BxB):
  return contrastive(query_BxE @ passage_BxE.T, compared_BxB)["loss"].value


def test_loss_and_gradient_equal_brute_force(atol):
  def reference(query_BxE):
    scores_BxB = query_BxE @ PASSAGE_BxE.T.astype(np.float64)
    return -np.mean(np.diagonal(special.log_softmax(scores_BxB, axis=1)))

  loss, gradient_BxE = jax.jit(jax.value_and_grad(mean_loss))(QUERY_BxE, PASSAGE_BxE, compared())
  np.testing.assert_allclose(loss, reference(QUERY_BxE), atol=atol)
  for index in ((0, 0), (3, 2), (5, 3)):
    step = np.zeros((6, 4))
    step[index] = 1e-5
    slope = (reference(QUERY_BxE + step) - reference(QUERY_BxE - step)) / 2e-5
    np.testing.assert_allclose(gradient_BxE[index], slope, atol=atol)


def test_padding_is_neither_counted_nor_a_negative(atol):
  scores_BxB = QUERY_BxE @ PASSAGE_BxE.T
  expected = contrastive(scores_BxB[:4, :4], compared()[:4, :4])
  found = contrastive(scores_BxB, compared([1, 1, 1, 1, 0, 0]))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), found, expected)


def test_a_right_passage_is_no_negative_wherever_it_stands():
  """Queries 0 and 3 have the same passage; those of 4 and 5 are unknown."""
  found = compared(uids=[7, 2, 3, 7, 0, 0])
  expected = np.ones((6, 6), bool)
  expected[0, 3] = expected[3, 0] = False
  np.testing.assert_array_equal(found, expected)


def test_figures(atol):
  """Positives ranked first, second and third of three."""
  scores_BxB = np.array([[9, 1, 0], [2, 1, 0], [3, 2, 1]], np.float32)
  metrics = contrastive(scores_BxB, np.ones((3, 3), bool))
  np.testing.assert_allclose(metrics["accuracy"].value, 1 / 3, atol=atol)
  mean_reciprocal_rank = (1 + 1 / 2 + 1 / 3) / 3
  np.testing.assert_allclose(metrics["mean_reciprocal_rank"].value, mean_reciprocal_rank, atol=atol)
