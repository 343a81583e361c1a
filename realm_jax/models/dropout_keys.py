"""Dropout keys: random bits that are a hash of the key and each number's position.

A key also records which rows of a batch it is for, so that a row has the same dropout whether its
batch is computed at once or in parts. The hash is plain arithmetic on the position. XLA fuses it
into its use, so no bits are kept for the backward pass, and every device of a mesh computes only
its own part of an array, with the same values however the array is sharded. XLA's own generator
would compute the whole array on every device. Good enough for dropout, but not for cryptography or
Monte Carlo.
"""

import math

import jax
import jax.extend.random
import jax.numpy as jnp


def dropout_key(seed: int | jax.Array, step: jax.Array) -> jax.Array:
  """Returns the key of one training step."""
  return jax.random.fold_in(jax.random.key(seed, impl=_HASHED), step)


def of_any(key: jax.Array) -> jax.Array:
  """Returns a dropout key derived from a key of any kind."""
  return _wrap(jax.random.bits(key, (2,), jnp.uint32), _WHOLE_BATCH)


def of_part(key: jax.Array, part: jax.Array, *, parts: int, rows: int) -> jax.Array:
  """Returns the key for a part of a batch: every `parts`-th row, starting at row `part`.

  Args:
    part: int32, index of the part.
    rows: Rows of the batch in a part. A longer array has several rows for each of these.
  """
  return _wrap(jax.random.key_data(key)[:2], (part, parts, rows))


_WHOLE_BATCH = (0, 1, 1)  # part, parts and rows of a part, behind the two words of a key


def _wrap(words: jax.Array, part) -> jax.Array:
  part = jnp.asarray(part, jnp.uint32)
  return jax.random.wrap_key_data(jnp.concatenate([words, part]), impl=_HASHED)


def _seed(seed: jax.Array) -> jax.Array:
  words = _THREEFRY.seed(seed)
  return jnp.concatenate([words, jnp.asarray(_WHOLE_BATCH, jnp.uint32)])


def _fold_in(key: jax.Array, data: jax.Array | int) -> jax.Array:
  data = jnp.asarray(data, jnp.uint32)
  first = _mix(key[0] ^ _mix(data + jnp.uint32(0x9E3779B9)))
  second = _mix(key[1] + _mix(data ^ first))
  return jnp.concatenate([jnp.stack([first, second]), key[2:]])


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32)
  key = jnp.concatenate([~key[:2], key[2:]])
  return jax.vmap(lambda number: _fold_in(key, number))(numbers).reshape(*shape, *key.shape)


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
  if bit_width > 32:
    raise ValueError(f"{bit_width} random bits a number; dropout keys give at most 32")
  if math.prod(shape[1:]) > 2**32:
    raise ValueError(f"a row of shape {shape[1:]} has more numbers than 32 bits can count")
  rows, row_shape = (shape[0], shape[1:]) if shape else (1, ())
  row = _rows_of_batch(key, rows)
  # Hoisted out of the loops over positions, which would otherwise derive the key again for each.
  key = jax.lax.optimization_barrier(key)
  # Two words for each row of the first axis, mixed with the position within the row. They too are
  # computed once; XLA would repeat their arithmetic in every loop that draws bits.
  words = [_mix(_mix(row ^ word) + other) for word, other in ((key[0], key[1]), (key[1], ~key[0]))]
  first, second = (
    word.reshape(rows, *(1 for _ in row_shape)) for word in jax.lax.optimization_barrier(words)
  )
  place = jnp.zeros((1, *row_shape), jnp.uint32)
  stride = 1
  for axis in reversed(range(1, len(shape))):
    place += jax.lax.broadcasted_iota(jnp.uint32, place.shape, axis) * jnp.uint32(stride)
    stride *= shape[axis]
  bits = _mix(_mix(place ^ first) + second).reshape(shape)
  return bits.astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


def _rows_of_batch(key: jax.Array, rows: int) -> jax.Array:
  """Returns the rows of the first axis as numbered in the undivided batch."""
  part, parts, part_rows = key[2:]
  each = jnp.maximum(jnp.uint32(rows) // part_rows, 1)
  row = jnp.arange(rows, dtype=jnp.uint32)
  return (row // each * parts + part) * each + row % each


def _mix(x: jax.Array) -> jax.Array:
  """Diffuses each bit over all 32: a bijection with two multiplications by odd numbers."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * jnp.uint32(0xD35A2D97)
  return x ^ (x >> 15)


_THREEFRY = jax.extend.random.threefry_prng_impl
_HASHED = jax.extend.random.define_prng_impl(
  key_shape=(5,),
  seed=_seed,
  split=_split,
  random_bits=_random_bits,
  fold_in=_fold_in,
  name="hashed_places",
  tag="hsh",
)
