"""Encodes sequences of similar length together, to avoid padding."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes

Encoded = TypeVar("Encoded")


def in_buckets(
  encode: Callable[..., Encoded],
  tokens_FxL: datatypes.Tokens,
  *others: jax.Array,
  buckets: datatypes.Buckets,
) -> Encoded:
  """Returns `encode(tokens_FxL, *others)`, computed bucket by bucket.

  Args:
    encode: Maps F sequences of any length, and their rows of `others`, to F rows, in
      one array or several.
    tokens_FxL: The sequences, padded at the end.
    *others: Further arrays of F rows.
    buckets: Rows and length of each bucket, F rows in total. The sequences, sorted by length, must
      fit. Empty computes all at full length.
  """
  if not buckets:
    return encode(tokens_FxL, *others)
  order_F = jnp.argsort(jnp.sum(tokens_FxL.mask, axis=1))
  encoded, first = [], 0
  for rows, length in buckets:
    taken = order_F[first : first + rows]
    encoded.append(encode(tokens_FxL[taken, :length], *(array[taken] for array in others)))
    first += rows
  back_F = jnp.argsort(order_F)
  return jax.tree.map(lambda *parts: jnp.concatenate(parts)[back_F], *encoded)
