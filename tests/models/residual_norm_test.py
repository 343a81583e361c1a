"""The closed form against autodiff of the definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.models import bert

RATE, EPSILON = 0.4, 1e-3
NORM = bert.ResidualNorm(EPSILON, RATE)


def definition(arrays, key):
  inputs, branch, scale, bias = arrays
  if key is not None:
    kept = jax.random.bernoulli(key, 1 - RATE, branch.shape)
    branch = jnp.where(kept, branch / (1 - RATE), 0)
  centred = inputs + branch - (inputs + branch).mean(axis=-1, keepdims=True)
  variance = jnp.square(centred).mean(axis=-1, keepdims=True)
  return centred / jnp.sqrt(variance + EPSILON) * scale[None, None] + bias[None, None]


def ours(arrays, key):
  *both, scale, bias = arrays
  return NORM.apply({"params": {"scale": scale, "bias": bias}}, *both, key)


def derivatives(norm, arrays, key):
  """Returns values, gradients, and the gradients of the gradients' squares."""

  def gradients(arrays):
    return jax.grad(lambda arrays: jnp.sum(jnp.sin(norm(arrays, key))))(arrays)

  def squares(arrays):
    return sum(jnp.sum(jnp.square(gradient)) for gradient in gradients(arrays))

  return norm(arrays, key), gradients(arrays), jax.grad(squares)(arrays)


@pytest.mark.parametrize("key", [None, jax.random.key(1)], ids=["all", "dropout"])
def test_is_the_norm_of_the_sum_in_value_and_two_derivatives(key):
  with jax.enable_x64(True):
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape) for shape in [(2, 3, 5)] * 2 + [(5,)] * 2]
    found, expected = (
      jax.jit(functools.partial(derivatives, norm))(arrays, key) for norm in (ours, definition)
    )
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), found, expected
    )
