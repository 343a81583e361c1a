"""Bits of dropout: fair, independent, and the same for a sequence wherever it is computed."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from realm_jax.devices import partitioning
from realm_jax.models import dropout


def bits(key, shape):
  return np.asarray(dropout.bits(dropout.words(key, shape[:1]), shape))


def correlation(a, b):
  return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


@pytest.mark.parametrize("shape", [(64, 32, 64), (4, 8, 64, 64)])
def test_bits_are_fair_and_independent_of_their_neighbours(shape):
  drawn = bits(jax.random.key(7), shape)
  flat = np.unpackbits(drawn.view(np.uint8)).reshape(*shape, 32).astype(np.float32)
  limit = 5 / np.sqrt(drawn.size)
  assert np.abs(flat.mean(axis=tuple(range(len(shape)))) - 0.5).max() < limit
  for axis in range(len(shape)):
    ahead, behind = np.split(flat.swapaxes(0, axis), [1])[1], flat.swapaxes(0, axis)[:-1]
    for bit in (0, 9, 31):
      assert correlation(ahead[..., bit], behind[..., bit]) < limit
  assert len(np.unique(drawn)) > 0.999 * drawn.size


def test_keys_places_kinds_and_uses_are_independent(make_tokens):
  tokens = make_tokens(np.random.default_rng(0), 128, 4, vocab_size=9)
  (first, second), other = (
    dropout.with_noise([tokens, tokens], jax.random.key(seed)) for seed in (0, 1)
  )
  words = [first.noise, second.noise, other[0].noise, first.noise[::-1]]
  words += [dropout.of_use(first.noise, path) for path in (("layers_0", "norm"), ("layers_1",))]
  kept = [np.asarray(dropout.kept(own, shape=(128, 512), rate=0.1), np.float32) for own in words]
  for i, mask in enumerate(kept):
    assert abs(mask.mean() - 0.9) < 5 * 0.3 / np.sqrt(mask.size)
    assert all(correlation(mask, other) < 5 / np.sqrt(mask.size) for other in kept[:i])


def test_neither_order_nor_padding_change_what_a_sequence_drops():
  words = dropout.words(jax.random.key(0), (6,))
  whole = dropout.bits(words, (6, 2, 9, 9))
  order = np.array([4, 0, 5])
  np.testing.assert_array_equal(
    dropout.bits(words[order], (3, 2, 5, 5)), whole[order][:, :, :5, :5]
  )


@pytest.mark.parametrize("spec", [("data", "model"), ("model", None), (None, ("data", "model"))])
def test_every_device_makes_its_part_alone(spec):
  sharding = NamedSharding(partitioning.make_mesh(model=2), PartitionSpec(*spec))

  def draw(key):
    return dropout.bits(dropout.words(key, (16,)), (16, 8)) >> 8

  program = jax.jit(draw, out_shardings=sharding).lower(jax.random.key(0)).compile()
  assert "all-" not in program.as_text() and "u32[16,8]" not in program.as_text()
  np.testing.assert_array_equal(program(jax.random.key(0)), draw(jax.random.key(0)))
