"""Bits of dropout keys: fair, independent, and the same on every mesh."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from realm_jax.devices import partitioning
from realm_jax.models.dropout_keys import dropout_key


def bits(key, shape):
  return np.asarray(jax.random.bits(key, shape))


def correlation(a, b):
  return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_bits_are_fair_and_independent_of_their_neighbours():
  drawn = bits(dropout_key(0, 7), (64, 32, 64))
  flat = np.unpackbits(drawn.view(np.uint8)).reshape(64, 32, 64, 32).astype(np.float32)
  limit = 5 / np.sqrt(drawn.size)
  assert np.abs(flat.mean(axis=(0, 1, 2)) - 0.5).max() < limit
  for axis in range(3):
    ahead, behind = np.split(flat.swapaxes(0, axis), [1])[1], flat.swapaxes(0, axis)[:-1]
    for bit in (0, 9, 31):
      assert correlation(ahead[..., bit], behind[..., bit]) < limit
  assert len(np.unique(drawn)) > 0.999 * drawn.size


def test_steps_seeds_and_uses_are_independent():
  key = dropout_key(0, 7)
  shape = (128, 512)
  kept = [
    np.asarray(jax.random.bernoulli(other, 0.9, shape)).astype(np.float32)
    for other in (key, dropout_key(1, 7), dropout_key(0, 8), *jax.random.split(key))
  ]
  for i, mask in enumerate(kept):
    assert abs(mask.mean() - 0.9) < 5 * 0.3 / np.sqrt(mask.size)
    assert all(correlation(mask, other) < 5 / np.sqrt(mask.size) for other in kept[:i])


@pytest.mark.parametrize("spec", [("data", "model"), ("model", None), (None, ("data", "model"))])
def test_every_device_makes_its_part_alone(spec):
  sharding = NamedSharding(partitioning.make_mesh(model=2), PartitionSpec(*spec))

  def draw(key):
    return jax.random.uniform(key, (16, 8))

  program = jax.jit(draw, out_shardings=sharding).lower(dropout_key(0, 0)).compile()
  assert "all-" not in program.as_text() and "f32[16,8]" not in program.as_text()
  np.testing.assert_array_equal(program(dropout_key(0, 0)), draw(dropout_key(0, 0)))
