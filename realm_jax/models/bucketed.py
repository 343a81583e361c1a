"""Encodes sequences of a batch together with those of similar length, without most of the padding.

Axis letters beside those of `datatypes`: N sequences.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from realm_jax import datatypes


def in_buckets(
  encode: Callable[..., jax.Array],
  tokens_NxL: datatypes.Tokens,
  *beside: jax.Array,
  buckets: datatypes.Buckets,
) -> jax.Array:
  """Returns `encode(tokens_NxL, *beside)`, computed bucket by bucket.

  Args:
    encode: Maps N sequences, of any length, and what stands beside them to N rows.
    tokens_NxL: The sequences; their padding is at their ends.
    *beside: Further arrays of N rows.
    buckets: Together of N rows; sorted by length, the sequences must fit. Empty for no buckets.
  """
  if not buckets:
    return encode(tokens_NxL, *beside)
  order_N = jnp.argsort(jnp.sum(tokens_NxL.mask, axis=1))
  encoded, first = [], 0
  for rows, length in buckets:
    taken = order_N[first : first + rows]
    tokens = jax.tree.map(lambda leaf, taken=taken, length=length: leaf[taken, :length], tokens_NxL)
    encoded.append(encode(tokens, *(array[taken] for array in beside)))
    first += rows
  return jnp.concatenate(encoded)[jnp.argsort(order_N)]
