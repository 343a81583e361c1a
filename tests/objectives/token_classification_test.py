import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives.token_classification import token_classification

LABELS_BxL = np.array([[0, 2, 1, 0], [0, 3, 0, 0]])


@pytest.fixture
def atol(float_tolerance):
  """For a mean over the three labelled ones of eight tokens, with three tags."""
  return float_tolerance(depth=8 + 2 * 3, scale=4)


def random_logits(seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(2, 4, 3)), jnp.float32)


def mean_loss(logits, labels=LABELS_BxL):
  return token_classification(logits, labels)["loss"].value


def test_the_loss_is_the_mean_over_labelled_tokens(atol):
  logits = random_logits()
  probs = np.asarray(jax.nn.softmax(logits))
  expected = -np.mean(np.log([probs[0, 1, 1], probs[0, 2, 0], probs[1, 1, 2]]))
  np.testing.assert_allclose(mean_loss(logits), expected, atol=atol)


def test_tokens_without_a_label_have_no_gradient():
  gradient = jax.grad(mean_loss)(random_logits())
  touched = np.abs(gradient).sum(axis=-1) > 0
  np.testing.assert_array_equal(touched, LABELS_BxL > 0)


def test_accuracy(atol):
  logits = np.full((2, 4, 3), -1.0, np.float32)
  logits[0, 1, 1] = logits[0, 2, 2] = logits[1, 1, 2] = 1.0
  figures = token_classification(jnp.asarray(logits), LABELS_BxL)
  np.testing.assert_allclose(figures["accuracy"].value, 2 / 3, atol=atol)


def test_a_batch_without_labels_is_harmless():
  loss, gradient = jax.value_and_grad(mean_loss)(random_logits(), np.zeros((2, 4), np.int32))
  assert loss == 0
  assert np.isfinite(gradient).all()
