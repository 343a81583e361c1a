"""Post-layer-norm residual with dropout, which ends both halves of a transformer layer.

The gradient is in closed form, from the sum, its means and its deviations alone; dropout is drawn
again. Autodiff would read the sum once more for the gradients of mean and variance, and keep more.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax.models.typed_module import TypedModule


class ResidualNorm(TypedModule):
  """Adds a branch to its input, with dropout, and normalises the sum in at least float32.

  Attributes:
    epsilon: Added to the variance.
    dropout_rate: Dropout rate of the branch.
  """

  epsilon: float
  dropout_rate: float

  @nn.compact
  def __call__(self, inputs: jax.Array, branch: jax.Array, key: jax.Array | None) -> jax.Array:
    """Returns an array like both, `[..., D]`; without a key nothing is dropped."""

    def param(name: str, init: nn.initializers.Initializer) -> jax.Array:
      of_axis = nn.with_logical_partitioning(init, ("embed",))
      return self.param(name, of_axis, inputs.shape[-1:]).reshape(*[1] * (inputs.ndim - 1), -1)

    scale, bias = param("scale", nn.initializers.ones), param("bias", nn.initializers.zeros)
    return _normed_sum(self.epsilon, self.dropout_rate, (inputs, branch, scale, bias), key)


def _dropped(values: jax.Array, key: jax.Array | None, rate: float) -> jax.Array:
  if key is None:
    return values
  is_kept = jax.random.bernoulli(key, 1 - rate, values.shape)
  return jnp.where(is_kept, values / (1 - rate), 0)


def _forward(epsilon, rate, arrays, key):
  inputs, branch, scale, bias = arrays
  total = inputs + _dropped(branch, key, rate)
  wide = total.astype(jnp.promote_types(total.dtype, jnp.float32))
  mean = wide.mean(axis=-1, keepdims=True)
  inverse = jax.lax.rsqrt(jnp.square(wide - mean).mean(axis=-1, keepdims=True) + epsilon)
  normed = (wide - mean) * (inverse * scale) + bias
  return normed.astype(total.dtype), (total, mean, inverse, scale, key)


def _gradients(epsilon, rate, kept, slope):
  del epsilon
  total, mean, inverse, scale, key = kept
  slope = slope.astype(mean.dtype)
  normed = (total.astype(mean.dtype) - mean) * inverse
  scaled = slope * scale
  along = scaled.mean(axis=-1, keepdims=True)
  across = (scaled * normed).mean(axis=-1, keepdims=True)
  of_total = (inverse * (scaled - along - normed * across)).astype(total.dtype)
  of_branch = _dropped(of_total, key, rate)
  rows = tuple(range(total.ndim - 1))
  of_scale, of_bias = (
    x.sum(rows, keepdims=True).astype(scale.dtype) for x in (slope * normed, slope)
  )
  return (of_total, of_branch, of_scale, of_bias), None


_normed_sum = jax.custom_vjp(lambda *arguments: _forward(*arguments)[0], nondiff_argnums=(0, 1))
_normed_sum.defvjp(_forward, _gradients)
