"""Matrix products that run on the matrix units of a CPU, TPU or GPU.

Narrow factors such as bfloat16 are multiplied exactly and accumulated in float32, in the gradients
too, so a float32 parameter gets a float32 gradient. XLA on CPU uses matrix units only for products
that sum over the rows of the first factor, `a @ b` and `a @ b.T`; for `a.T @ b`, which gradients
need, the transpose of bfloat16 factors is materialized first.

Factors are `[..., M, I]` with equal leading dimensions, multiplied in `dtype`. Gradients can be
differentiated again, but only in reverse mode.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Layout, with_layout_constraint

from realm_jax.foundations import system


@functools.cache
def fastest_dtype() -> str:
  """Returns "bfloat16" or "float32", whichever the default device multiplies faster.

  That is bfloat16 on accelerators and on CPUs with instructions for its products (AMX, AVX-512).
  """
  if jax.default_backend() != "cpu":
    return "bfloat16"
  fast = {"amx_bf16", "avx512_bf16"} & set(system.processor("flags").split())
  return "bfloat16" if fast else "float32"


def _product(first: jax.Array, second: jax.Array, dtype: str) -> jax.Array:
  """Returns `first @ second` in at least float32."""
  return _dot(first, second, dtype, axes=(-1, -2))


def _product_transposed(first: jax.Array, second: jax.Array, dtype: str) -> jax.Array:
  """Returns `first @ second.T` in at least float32."""
  return _dot(first, second, dtype, axes=(-1, -1))


def _activated_product(first, second, dtype: str, activate) -> jax.Array:
  """Returns `activate(first) @ second`; the activations are computed again for the gradients."""
  return _product(activate(first), second, dtype)


product = jax.custom_vjp(_product, nondiff_argnums=(2,))
product_transposed = jax.custom_vjp(_product_transposed, nondiff_argnums=(2,))
activated_product = jax.custom_vjp(_activated_product, nondiff_argnums=(2, 3))


def _dot(first, second, dtype, *, axes: tuple[int, int]) -> jax.Array:
  batch = tuple(range(first.ndim - 2))
  return jax.lax.dot_general(
    first.astype(dtype),
    second.astype(dtype),
    (((first.ndim + axes[0],), (second.ndim + axes[1],)), (batch, batch)),
    preferred_element_type=jnp.promote_types(dtype, jnp.float32),
  )


def _product_gradients(dtype, factors, slope):
  first, second = factors
  slope = _rounded(slope, dtype)
  # XLA would give the second the consumer's layout, and copy the factors for it.
  return (
    product_transposed(slope, second, dtype).astype(first.dtype),
    _unfused(_product_over_rows(first, slope, dtype).astype(second.dtype)),
  )


def _product_transposed_gradients(dtype, factors, slope):
  first, second = factors
  slope = _rounded(slope, dtype)
  return (
    product(slope, second, dtype).astype(first.dtype),
    _product_over_rows(slope, first, dtype).astype(second.dtype),
  )


def _activated_product_gradients(dtype, activate, factors, slope):
  first, second = factors
  # XLA would write to memory what the forward pass and the gradients share.
  first = _unfused(first)
  activated = activate(_unfused(first))
  of_activated, of_second = _product_gradients(dtype, (activated, second), slope)
  (of_first,) = jax.vjp(activate, first)[1](of_activated)
  # It leaves narrow; XLA would write it wide, and read it again only to round and sum it.
  return _unfused(of_first), of_second


def _product_over_rows(first: jax.Array, second: jax.Array, dtype: str) -> jax.Array:
  """Returns `first.T @ second` in at least float32."""
  # A product with a single column gains nothing from matrix units.
  if dtype != "bfloat16" or second.shape[-1] == 1:
    return _dot(first, second, dtype, axes=(-2, -2))
  transposed = first.astype(dtype).swapaxes(-1, -2)
  transposed = jax.lax.platform_dependent(transposed, cpu=_materialized, default=_identity)
  return product(transposed, second, dtype)


def _rounded(matrix: jax.Array, dtype: str) -> jax.Array:
  """Returns a factor of a gradient, which accelerators keep in memory in the narrow dtype.

  XLA would fuse what it is computed from into the products and keep that, transposed, in float32.
  """
  return _unfused(matrix.astype(dtype))


def _unfused(matrix: jax.Array) -> jax.Array:
  """Returns a matrix that accelerators do not fuse with what it is computed from."""
  return jax.lax.platform_dependent(matrix, cpu=_identity, default=jax.lax.optimization_barrier)


def _identity(matrix: jax.Array) -> jax.Array:
  return matrix


def _row_major(matrix: jax.Array) -> jax.Array:
  return with_layout_constraint(matrix, Layout(tuple(range(matrix.ndim))))


# The partitioner does not know layout constraints and would gather a sharded matrix.
_materialized = custom_partitioning(_row_major)
_materialized.def_partition(
  partition=lambda mesh, arguments, result: (mesh, _row_major, result.sharding, (result.sharding,)),
  sharding_rule="... -> ...",
)


def _with_gradients(multiply, gradients):
  multiply.defvjp(
    lambda first, second, *settings: (multiply(first, second, *settings), (first, second)),
    gradients,
  )


_with_gradients(product, _product_gradients)
_with_gradients(product_transposed, _product_transposed_gradients)
_with_gradients(activated_product, _activated_product_gradients)
