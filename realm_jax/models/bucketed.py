"""Encodes sequences of a batch together with others of similar length, to avoid padding."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from realm_jax import datatypes


def in_buckets(
  encode: Callable[..., jax.Array],
  tokens_FxL: datatypes.Tokens,
  *beside: jax.Array,
  buckets: datatypes.Buckets,
) -> jax.Array:
  """Returns `encode(tokens_FxL, *beside)`, computed bucket by bucket.

  Args:
    encode: Maps F sequences of any length, and their rows of `beside`, to F rows.
    tokens_FxL: The sequences; their padding is at their ends.
    *beside: Further arrays of F rows.
    buckets: F rows in total; sorted by length, the sequences must fit. Empty for no buckets.
  """
  if not buckets:
    return encode(tokens_FxL, *beside)
  order_F = jnp.argsort(jnp.sum(tokens_FxL.mask, axis=1))
  encoded, first = [], 0
  for rows, length in buckets:
    taken = order_F[first : first + rows]
    encoded.append(encode(tokens_FxL[taken, :length], *(array[taken] for array in beside)))
    first += rows
  return jnp.concatenate(encoded)[jnp.argsort(order_F)]
