import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives.masked_lm import masked_lm

TARGETS_BxM = jnp.array([[0, 1, 0, 0], [0, 2, 0, 0]])
WEIGHTS_BxM = jnp.array([[0, 1, 1, 0], [0, 1, 0, 0]], jnp.float32)


@pytest.fixture
def atol(float_tolerance):
  """For a mean over the three masks of eight places, with three words."""
  return float_tolerance(depth=8 + 2 * 3, scale=4)


def random_logits(seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(2, 4, 3)), jnp.float32)


def mean_loss(logits, weights=WEIGHTS_BxM):
  return masked_lm(logits, TARGETS_BxM, weights)["loss"].value


def test_the_loss_is_the_mean_over_masks(atol):
  logits = random_logits()
  probs = np.asarray(jax.nn.softmax(logits))
  expected = -np.mean(np.log([probs[0, 1, 1], probs[0, 2, 0], probs[1, 1, 2]]))
  np.testing.assert_allclose(mean_loss(logits), expected, atol=atol)


def test_padding_has_no_gradient():
  gradient = jax.grad(mean_loss)(random_logits())
  touched = np.abs(gradient).sum(axis=-1) > 0
  np.testing.assert_array_equal(touched, WEIGHTS_BxM > 0)


def test_accuracy(atol):
  logits = np.full((2, 4, 3), -1.0, np.float32)
  logits[0, 1, 1] = logits[0, 2, 2] = logits[1, 1, 2] = 1.0
  metrics = masked_lm(jnp.asarray(logits), TARGETS_BxM, WEIGHTS_BxM)
  np.testing.assert_allclose(metrics["accuracy"].value, 2 / 3, atol=atol)


def test_a_batch_without_masks_is_harmless():
  loss, gradient = jax.value_and_grad(mean_loss)(random_logits(), jnp.zeros((2, 4)))
  assert loss == 0
  assert np.isfinite(gradient).all()
