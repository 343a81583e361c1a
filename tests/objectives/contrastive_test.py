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


def compared(weights_B=None, *, uids=range(1, 7), right=None):
  """What each of six queries is compared with; all are real and different by default."""
  uid_BxK = np.array(uids, np.int32).reshape(6, -1)
  real_BxK = np.ones(uid_BxK.shape, bool)
  if weights_B is not None:
    real_BxK &= np.array(weights_B, bool)[:, None]
  right_BxO = np.zeros((6, 1), np.int32) if right is None else np.array(right, np.int32)[:, None]
  return compared_passages(real_BxK, uid_BxK, right_BxO)


def mean_loss(query_BxE, passage_BxE, compared_BxF):
  return contrastive(query_BxE @ passage_BxE.T, compared_BxF)["loss"].value


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
  """Queries 0 and 3 have the same passage; that of 5 is also a positive of 1."""
  found = compared(uids=[7, 2, 3, 7, 5, 6], right=[0, 6, 0, 0, 0, 0])
  expected = np.ones((6, 6), bool)
  expected[0, 3] = expected[3, 0] = expected[1, 5] = False
  np.testing.assert_array_equal(found, expected)


def test_a_wrong_passage_is_a_negative_of_all_queries(atol):
  """The passage of query 1 is a hard negative of 0 and the positive of 1; two slots are empty."""
  uid_BxK = np.array([[1, 2], [2, 3], [4, 0]], np.int32)
  real_BxK = uid_BxK != 0
  compared_BxF = compared_passages(real_BxK, uid_BxK, np.zeros((3, 0), np.int32))
  scores_BxF = QUERY_BxE[:3] @ PASSAGE_BxE.T
  found = contrastive(scores_BxF, compared_BxF)
  scores_BxF = scores_BxF.astype(np.float64)
  scores_BxF[:, 5] = -np.inf
  scores_BxF[1, 1] = -np.inf
  own_B = special.log_softmax(scores_BxF, axis=1)[np.arange(3), [0, 2, 4]]
  np.testing.assert_allclose(found["loss"].value, -own_B.mean(), atol=atol)


def test_figures(atol):
  """Positives ranked first, second and third of three."""
  scores_BxB = np.array([[9, 1, 0], [2, 1, 0], [3, 2, 1]], np.float32)
  figures = contrastive(scores_BxB, np.ones((3, 3), bool))
  np.testing.assert_allclose(figures["accuracy"].value, 1 / 3, atol=atol)
  mean_reciprocal_rank = (1 + 1 / 2 + 1 / 3) / 3
  np.testing.assert_allclose(figures["mean_reciprocal_rank"].value, mean_reciprocal_rank, atol=atol)
