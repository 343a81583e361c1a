import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from realm_jax.objectives import marginal_likelihood

B, K, M, V = 4, 3, 3, 7
MODES = pytest.mark.parametrize("marginalize", ["span", "token"])


@pytest.fixture
def batch(make_retrieved_batch):
  """Some examples have several masks, one has none, and one slot is empty."""
  batch = make_retrieved_batch(0, queries=B, passages=K, masks=M, vocab_size=V)
  weights_BxM = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], np.float32)
  valid_BxK = np.ones((B, K), bool)
  valid_BxK[1, 2] = False
  queries = batch.queries.replace(mlm_weights_BxM=weights_BxM)
  return batch.replace(queries=queries, valid_BxK=valid_BxK)


@pytest.fixture
def outputs():
  random = np.random.default_rng(1)
  scores_BxK = random.normal(size=(B, K)).astype(np.float32)
  return scores_BxK, 2 * random.normal(size=(B, K, M, V)).astype(np.float32)


@pytest.fixture
def atol(float_tolerance):
  """For log-likelihoods and their gradients: sums over words, masks, passages and examples."""
  return float_tolerance(depth=V + M + K + B, scale=8)


@functools.partial(jax.jit, static_argnames=("marginalize", "objective"))
def loss_and_metrics(scores_BxK, logits_BxKxMxV, batch, **settings):
  figures = marginal_likelihood.masked_lm_over_retrieval(
    scores_BxK, logits_BxKxMxV, batch, **settings
  )
  metrics = {name: mean.value for name, mean in figures.items()}
  return metrics["loss"], metrics


@functools.partial(jax.jit, static_argnames=("marginalize", "objective"))
def gradients(scores_BxK, logits_BxKxMxV, batch, **settings):
  return jax.grad(loss_and_metrics, argnums=(0, 1), has_aux=True)(
    scores_BxK, logits_BxKxMxV, batch, **settings
  )[0]


def reference(scores_BxK, logits_BxKxMxV, batch, *, marginalize):
  """The loss in float64, probability by probability, with loops."""
  queries = batch.queries
  total, count = 0.0, 0.0
  for b in range(len(scores_BxK)):
    masks = [m for m in range(M) if queries.mlm_weights_BxM[b, m]]
    slots = [k for k in range(scores_BxK.shape[1]) if batch.valid_BxK[b, k]]
    normaliser = sum(math.exp(scores_BxK[b, k]) for k in slots)
    prior = {k: math.exp(scores_BxK[b, k]) / normaliser for k in slots}
    prob = {}
    for k in slots:
      for m in masks:
        exps = np.exp(np.asarray(logits_BxKxMxV[b, k, m], np.float64))
        prob[k, m] = exps[queries.mlm_targets_BxM[b, m]] / exps.sum()
    if marginalize == "token":
      total += sum(math.log(sum(prior[k] * prob[k, m] for k in slots)) for m in masks)
      count += len(masks)
    elif masks:
      total += math.log(sum(prior[k] * math.prod(prob[k, m] for m in masks) for k in slots))
      count += 1
  return -total / count


def numerical_gradient(function, array):
  """Central differences in float64."""
  array = np.asarray(array, np.float64)
  gradient = np.zeros_like(array)
  for index in np.ndindex(*array.shape):
    values = []
    for step in (1e-5, -1e-5):
      moved = array.copy()
      moved[index] += step
      values.append(function(moved))
    gradient[index] = (values[0] - values[1]) / 2e-5
  return gradient


@MODES
def test_loss_and_gradients_equal_brute_force(outputs, batch, atol, marginalize):
  scores_BxK, logits_BxKxMxV = outputs
  loss, metrics = loss_and_metrics(*outputs, batch, marginalize=marginalize)
  assert metrics["loss"] == loss
  np.testing.assert_allclose(
    loss, reference(outputs[0], outputs[1], batch, marginalize=marginalize), atol=atol
  )
  brute = functools.partial(reference, batch=batch, marginalize=marginalize)
  scores_gradient, logits_gradient = gradients(*outputs, batch, marginalize=marginalize)
  np.testing.assert_allclose(
    scores_gradient, numerical_gradient(lambda s: brute(s, logits_BxKxMxV), scores_BxK), atol=atol
  )
  np.testing.assert_allclose(
    logits_gradient, numerical_gradient(lambda x: brute(scores_BxK, x), logits_BxKxMxV), atol=atol
  )


@MODES
def test_a_batch_without_masks_has_no_loss_and_no_gradient(outputs, batch, marginalize):
  none = batch.queries.replace(mlm_weights_BxM=np.zeros((B, M), np.float32))
  batch = batch.replace(queries=none)
  _, metrics = loss_and_metrics(*outputs, batch, marginalize=marginalize)
  assert set(map(float, metrics.values())) == {0.0}
  for gradient in gradients(*outputs, batch, marginalize=marginalize):
    np.testing.assert_array_equal(gradient, 0)


@MODES
def test_an_empty_slot_is_not_read(outputs, batch, marginalize):
  """Whatever it contains."""
  other = [array.copy() for array in outputs]
  other[0][1, 2] = np.inf
  other[1][1, 2] = 1e30
  expected = loss_and_metrics(*outputs, batch, marginalize=marginalize)
  found = loss_and_metrics(*other, batch, marginalize=marginalize)
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  for gradient in gradients(*other, batch, marginalize=marginalize):
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[1, 2], 0)


def test_figures_of_a_batch_made_by_hand(make_retrieved_batch, atol):
  """Passage 1 answers example 0, none answers example 1, all answer example 2; 3 is padding."""
  batch = make_retrieved_batch(0, queries=4, passages=4, masks=2, vocab_size=5)
  queries = batch.queries.replace(
    mlm_targets_BxM=np.array([[1, 2], [3, 0], [3, 3], [0, 0]], np.int32),
    mlm_weights_BxM=np.array([[1, 1], [1, 0], [1, 0], [0, 0]], np.float32),
  )
  stale_BxK = np.array([[0, 3, 2, 1], [0, 1, 2, 9], [0, 1, 2, 3], [0, 1, 2, 3]], np.float32)
  valid_BxK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)
  batch = batch.replace(queries=queries, stale_scores_BxK=stale_BxK, valid_BxK=valid_BxK)
  weights_BxK = np.array([[1, 7, 1, 1], [2, 1, 1, 5], [3, 1, 1, 1], [1, 1, 1, 1]], np.float32)
  logits_BxKxMxV = np.zeros((4, 4, 2, 5), np.float32)
  logits_BxKxMxV[0, 1, 0, 1] = logits_BxKxMxV[0, 1, 1, 2] = math.log(16)  # p = 16/20, not 1/5
  logits_BxKxMxV[0, 2] = 50  # no likelier a passage for its large logits
  logits_BxKxMxV[1, :, 0, 4] = math.log(16)  # p(target) = 1/20
  logits_BxKxMxV[2, :, 0, 3] = math.log(16)  # p(target) = 16/20
  _, metrics = loss_and_metrics(np.log(weights_BxK), logits_BxKxMxV, batch, marginalize="span")

  p_0 = 0.7 * 0.8**2 + 0.3 * 0.2**2
  expected = {
    "loss": -(math.log(p_0) + math.log(1 / 20) + math.log(0.8)) / 3,
    "masked_token_accuracy": 3 / 4,
    "span_accuracy": 2 / 3,
    "null_span_accuracy": 1 / 3,
    "retrieval_utility": (math.log(p_0) - 2 * math.log(0.2)) / 4,
    "null_mass": (0.1 + 0.5 + 1) / 3,
    "retrieval_entropy": (stats.entropy([0.1, 0.7, 0.1, 0.1]) + stats.entropy([2, 1, 1])) / 3,
    "positive_utility_share": 1 / 3,
    "proposed_mass": 0,
    # Of example 0 alone: the real passages of example 1 score the same, example 2 has none.
    "stale_rank_correlation": stats.spearmanr([3, 2, 1], [7, 1, 1])[0],
  }
  assert sorted(metrics) == sorted(expected)
  for name, value in expected.items():
    assert metrics[name].dtype == jnp.float32 and metrics[name].shape == ()
    np.testing.assert_allclose(metrics[name], value, atol=atol, err_msg=name)


@MODES
def test_what_the_posterior_proposed_is_read_like_what_was_found(outputs, batch, atol, marginalize):
  stale_BxK = batch.stale_scores_BxK.copy()
  stale_BxK[:, 2] = -np.inf
  proposed = batch.replace(stale_scores_BxK=stale_BxK)
  expected, _ = loss_and_metrics(*outputs, batch, marginalize=marginalize)
  loss, metrics = loss_and_metrics(*outputs, proposed, marginalize=marginalize)
  assert loss == expected
  jax.tree.map(
    np.testing.assert_array_equal,
    gradients(*outputs, proposed, marginalize=marginalize),
    gradients(*outputs, batch, marginalize=marginalize),
  )
  # The one real passage left has no rank, and slot 2 of example 1 is empty.
  assert metrics["stale_rank_correlation"] == 0
  scores_BxK, logits_BxKxMxV = outputs
  mass = []
  for b in (0, 2):
    masks = [m for m in range(M) if batch.queries.mlm_weights_BxM[b, m]]
    log_probs_KxMxV = np.asarray(jax.nn.log_softmax(logits_BxKxMxV[b]))
    targets = batch.queries.mlm_targets_BxM[b]
    joint_K = [
      s + sum(p[m, targets[m]] for m in masks)
      for s, p in zip(scores_BxK[b], log_probs_KxMxV, strict=True)
    ]
    mass.append(np.exp(joint_K[2]) / np.exp(joint_K).sum())
  np.testing.assert_allclose(metrics["proposed_mass"], sum(mass) / 3, atol=atol)
