"""Sequences are computed in buckets of similar length, so that little of a step is padding.

A program has static shapes, so the lengths of its buckets follow from those of the corpus: of a
device's sequences, sorted by length, each quarter has the length that is likely to hold it. Batches
that do not fit have longer buckets, or none. No result depends on the buckets.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Buckets, Lengths, Tokens

_BUCKETS = 4
_STEP = 16  # lengths are rounded up to a multiple of this
# Joint inputs that are shorter gain less in a run of minutes than their programs take to compile.
_LONG = 64
# Added to the quantile that a bucket holds, besides the standard deviation of that of a sample. The
# second fits where passages that are retrieved are longer than others.
_SHIFTS = (0.0, 0.25)

# Wordpieces of sentences of Simple English Wikipedia with a capitalised word or a number in them:
# the quantiles 0.1 to 0.9, and 0.95. Queries are sentences.
_SENTENCES = (11, 15, 17, 20, 22, 24, 28, 32, 41, 49)

Encoded = TypeVar("Encoded")
Ways = list[tuple[jax.Array, Any]]


@dataclasses.dataclass(frozen=True)
class Sequences:
  """Sequences that are computed together, and what is known of their lengths.

  Attributes:
    tokens: The sequences, those of a query in a row.
    lengths: Lengths that they are likely to have; empty if unknown.
    null_length: Length of those without a passage, of which each query has one; None for none.
  """

  tokens: Tokens
  lengths: Lengths
  null_length: int | None = None

  def buckets(self, shift: float) -> Buckets:
    """Returns buckets of a device; a higher `shift` makes them longer."""
    *shape, longest = self.tokens.shape
    queries = shape[0] // partitioning.num_shares(shape[0])
    rows, found = queries * math.prod(shape[1:]), {}  # the rows of each length
    if self.null_length is not None:
      rows, found = rows - queries, {min(self.null_length, longest): queries}
    edges = np.linspace(0, rows, _BUCKETS + 1).astype(int)[1:]
    shares = edges / max(rows, 1)
    shares = np.minimum(shares + shift + np.sqrt(shares * (1 - shares) / max(rows, 1)), 1)
    tops = np.ceil(np.quantile(self.lengths, shares) / _STEP).astype(int) * _STEP
    for top, count in zip(tops.tolist(), np.diff(edges, prepend=0).tolist(), strict=True):
      top = min(top, longest)
      found[top] = found.get(top, 0) + count
    return tuple((count, top) for top, count in sorted(found.items()) if count)


def of_queries(of_corpus: Lengths, longest: int) -> Lengths:
  """Returns lengths that queries are likely to have; unknown if those of the corpus are."""
  return tuple(min(length, longest) for length in (*_SENTENCES, longest)) if of_corpus else ()


def after_queries(of_corpus: Lengths, longest_query: int) -> Lengths:
  """Returns lengths that passages are likely to have together with queries."""
  queries = of_queries(of_corpus, longest_query)
  return tuple(passage + query for passage in of_corpus for query in queries)


def ways(batch: Any, **sequences: Sequences) -> Ways:
  """Returns the batch with other buckets each time, cheapest first, and whether it fits into them.

  The last have none, so they hold every batch.

  Args:
    batch: A dataclass with a field `x_buckets` for sequences `x`.
    **sequences: All sequences by name.
  """
  whole = (jnp.array(True), batch)
  is_long = max(of.tokens.shape[-1] for of in sequences.values()) >= _LONG
  if not is_long or not all(of.lengths for of in sequences.values()):
    return [whole]
  found = []
  for shift in _SHIFTS:
    buckets = {name: of.buckets(shift) for name, of in sequences.items()}
    fits = [_fit(of.tokens, buckets[name]) for name, of in sequences.items()]
    fields = {f"{name}_buckets": of for name, of in buckets.items()}
    found.append((jnp.all(jnp.stack(fits)), dataclasses.replace(batch, **fields)))
  return [*found, whole]


def _fit(tokens: Tokens, buckets: Buckets) -> jax.Array:
  """Returns whether the sequences of every device fit into its buckets."""
  if not buckets:
    return jnp.array(True)
  length_DxF = _lengths(tokens, buckets)
  room_F = np.repeat([length for _, length in buckets], [rows for rows, _ in buckets])
  return jnp.all(jnp.sort(length_DxF, axis=1) <= room_F[None])


def in_buckets(
  encode: Callable[..., Encoded], tokens_FxL: Tokens, *others: jax.Array, buckets: Buckets
) -> Encoded:
  """Returns `encode(tokens_FxL, *others)`, computed bucket by bucket.

  Args:
    encode: Maps sequences of any length, and their rows of `others`, to as many rows, in one array
      or several.
    tokens_FxL: The sequences, padded at the end, each device's in a row.
    *others: Further arrays of F rows.
    buckets: Buckets of a device, into which its sequences fit. Empty computes all at full length.
  """
  if not buckets:
    return encode(tokens_FxL, *others)
  order_DxF = jnp.argsort(_lengths(tokens_FxL, buckets), axis=1)
  rows = jax.tree.map(lambda leaf: _taken(leaf, order_DxF), (tokens_FxL, others))
  encoded, first = [], 0
  for count, length in buckets:
    part = jax.tree.map(lambda leaf: leaf[:, first : first + count], rows)  # noqa: B023
    tokens, arrays = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), part)
    found = encode(tokens[:, :length], *arrays)
    encoded.append(
      jax.tree.map(lambda leaf: leaf.reshape(-1, count, *leaf.shape[1:]), found)  # noqa: B023
    )
    first += count
  back_DxF = jnp.argsort(order_DxF, axis=1)

  def restored(*parts):
    whole = _along(jnp.concatenate(parts, axis=1), back_DxF)
    return whole.reshape(-1, *whole.shape[2:])

  return jax.tree.map(restored, *encoded)


def balanced(rows: Any, *, parts: int) -> Any:
  """Returns rows in an order in which every `parts`-th ones have as many wordpieces as the others.

  Each device keeps its rows, and all stay where they are if there are no `Tokens` among them.
  """
  leaves = jax.tree.leaves(rows, is_leaf=lambda leaf: isinstance(leaf, Tokens))
  masks = [leaf.mask for leaf in leaves if isinstance(leaf, Tokens)]
  if not masks or len(masks[0]) % parts:
    return rows
  size_B = jnp.asarray(sum(jnp.sum(mask.reshape(len(mask), -1), axis=1) for mask in masks))
  shares = partitioning.num_shares(len(size_B) // parts)
  order_DxB = jnp.argsort(size_B.reshape(shares, -1), axis=1)
  dealt = order_DxB.reshape(shares, -1, parts)
  dealt = dealt.at[:, 1::2].set(dealt[:, 1::2, ::-1])
  order_DxB = dealt.reshape(order_DxB.shape)
  return jax.tree.map(lambda leaf: _taken(leaf, order_DxB).reshape(leaf.shape), rows)


def _lengths(tokens: Tokens, buckets: Buckets) -> jax.Array:
  """Returns the lengths `[D, F]` of the sequences of each device."""
  return jnp.sum(tokens.mask, axis=-1).reshape(-1, sum(rows for rows, _ in buckets))


def _taken(rows: jax.Array, order_DxF: jax.Array) -> jax.Array:
  return _along(rows.reshape(*order_DxF.shape, *rows.shape[1:]), order_DxF)


def _along(array: jax.Array, order_DxF: jax.Array) -> jax.Array:
  index = order_DxF.reshape(*order_DxF.shape, *(1 for _ in array.shape[2:]))
  return jnp.take_along_axis(array, index, axis=1)
