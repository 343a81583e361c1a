"""Dropout whose random bits are a hash of a sequence's words and of each number's position in it.

The words are a hash of the step's key and of the sequence's place in the batch. They go with the
sequence (`Tokens.noise`), so it has the same dropout in any order, part and padded length of a
batch, and on every mesh. The hash is plain arithmetic: XLA fuses it into its use, so no bits are
kept for the backward pass, and every device computes only its own part of an array. XLA's own
generator would compute the whole array on every device. Good enough for dropout, but not for
cryptography or Monte Carlo.
"""

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.devices.datatypes import Tokens

# Of an index along the last axis, the one before, and so on. Not the sizes of the axes, which vary
# with the padding; those of positions are distinct in every sequence.
_STRIDES = (1, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)


def with_noise(batch: Any, key: jax.Array) -> Any:
  """Returns a batch whose `Tokens` have noise, by a key of any kind and their places in it."""
  kind = itertools.count()

  def add(leaf):
    if not isinstance(leaf, Tokens):
      return leaf
    own = jax.random.fold_in(key, next(kind))
    return dataclasses.replace(leaf, noise=words(own, leaf.shape[:-1]))

  return jax.tree.map(add, batch, is_leaf=lambda leaf: isinstance(leaf, Tokens))


def words(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Returns uint32 `[*shape, 2]`: two random words for each place of an array."""
  first, second = jax.random.bits(key, (2,), jnp.uint32)
  place = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
  return jnp.stack([_mix(_mix(place ^ a) + b) for a, b in ((first, second), (second, ~first))], -1)


def of_use(words_Fx2: jax.Array, path: Sequence[str]) -> jax.Array:
  """Returns other words for each module that drops numbers, given its path."""
  use = jnp.uint32(zlib.crc32("/".join(path).encode()))
  return jnp.stack([_mix(words_Fx2[:, 0] ^ use), _mix(words_Fx2[:, 1] + use)], axis=1)


def bits(words_Fx2: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Returns uint32 of a shape `[F, ...]` with at most four further axes."""
  # The words are computed once; XLA would repeat their arithmetic in every loop that draws bits.
  words_Fx2 = jax.lax.optimization_barrier(words_Fx2)
  first, second = (words_Fx2[:, i].reshape(-1, *(1 for _ in shape[1:])) for i in range(2))
  place = jnp.zeros((1, *shape[1:]), jnp.uint32)
  for axis, stride in zip(range(len(shape) - 1, 0, -1), _STRIDES, strict=False):
    place += jax.lax.broadcasted_iota(jnp.uint32, place.shape, axis) * jnp.uint32(stride)
  return _mix(_mix(place ^ first) + second)


@functools.partial(jax.jit, static_argnames=("shape", "rate"))
def kept(words_Fx2: jax.Array, *, shape: tuple[int, ...], rate: float) -> jax.Array:
  """Returns which numbers of an array `[F, ...]` are kept."""
  drawn = (bits(words_Fx2, shape) >> 8).astype(jnp.int32)
  return drawn < round((1 - rate) * 2**24)


def dropped(values: jax.Array, words_Fx2: jax.Array | None, rate: float) -> jax.Array:
  """Applies dropout to an array `[F, ...]`; without words nothing is dropped."""
  if words_Fx2 is None or not rate:
    return values
  is_kept = kept(words_Fx2, shape=values.shape, rate=rate)
  return jnp.where(is_kept, values / (1 - rate), 0)


def _mix(x: jax.Array) -> jax.Array:
  """Diffuses each bit over all 32: a bijection with two multiplications by odd numbers."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * jnp.uint32(0xD35A2D97)
  return x ^ (x >> 15)
