"""Buckets of lengths: what they hold, and that nothing depends on them."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices import partitioning
from realm_jax.models import lengths
from realm_jax.models.lengths import in_buckets
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood


def encode(weights_V, tokens, scale_Fx1):
  """Sums weights over each sequence; also returns the width of the sequences."""
  assert tokens.shape[-1] in (3, 6, 9)
  total_F = jnp.sum(jnp.where(tokens.mask, weights_V[tokens.ids], 0.0), axis=1)
  return total_F[:, None] * scale_Fx1


def test_rows_keep_their_places_and_their_gradients(make_tokens):
  random = np.random.default_rng(0)
  tokens = make_tokens(random, 7, 9, vocab_size=20)
  lengths = np.array([9, 2, 6, 3, 5, 3, 2])
  mask = np.arange(9) < lengths[:, None]
  tokens = tokens.replace(mask=mask)
  weights_V = random.normal(size=20).astype(np.float32)
  scale_Fx1 = random.normal(size=(7, 1)).astype(np.float32)

  def loss(weights_V, scale_Fx1, buckets):
    outputs_Fx1 = in_buckets(
      lambda *rows: encode(weights_V, *rows), tokens, scale_Fx1, buckets=buckets
    )
    return jnp.sum(outputs_Fx1**3), outputs_Fx1

  results = [
    jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), static_argnums=2)(
      weights_V, scale_Fx1, buckets
    )
    for buckets in ((), ((4, 3), (2, 6), (1, 9)))
  ]
  # Sums of up to nine numbers below 4, cubed and multiplied.
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *results)


ways_of = MarginalLikelihood().build(None).ways
LENGTHS = tuple(np.linspace(4, 60, 65).astype(int).tolist())


def drawn(make_retrieved_batch, *, shortest=4, longest=60, queries=16, seed=0):
  """Returns a batch whose passages have the lengths of a range, all queries alike."""
  batch = make_retrieved_batch(
    seed,
    queries=queries,
    passages=8,
    masks=2,
    vocab_size=20,
    query_length=16,
    passage_length=64,
    joint_length=96,
  )
  random = np.random.default_rng(seed)
  of_passage_BxR = np.linspace(shortest, longest, queries * 7).astype(int).reshape(7, queries).T
  of_query_Bx1 = random.integers(4, 17, (queries, 1))
  for tokens, length_BxK in (
    (batch.passage, np.concatenate([np.full((queries, 1), 3), of_passage_BxR], axis=1)),
    (batch.joint, np.concatenate([of_query_Bx1 + 1, of_query_Bx1 + of_passage_BxR], axis=1)),
  ):
    tokens.mask[:] = np.arange(tokens.shape[-1]) < length_BxK[..., None]
  return batch


@pytest.mark.parametrize("num_devices", [1, 2])
@pytest.mark.parametrize(
  ("shortest", "longest", "expected"),
  [(4, 60, [True, True, True]), (30, 60, [False, True, True]), (60, 60, [False, False, True])],
)
def test_the_first_way_that_fits_holds_every_sequence(
  make_retrieved_batch, num_devices, shortest, longest, expected
):
  batch = drawn(make_retrieved_batch, shortest=shortest, longest=longest)
  mesh = partitioning.make_mesh(devices=jax.devices()[:num_devices])
  ways = partitioning.on_mesh(mesh, lambda rows: ways_of(rows, LENGTHS))(batch)
  assert [bool(fits) for fits, _ in ways] == expected
  costs = []
  for fits, way in ways[:-1]:
    cost = 0
    for tokens, buckets in (
      (way.passage[:, 1:], way.passage_buckets),
      (way.joint, way.joint_buckets),
    ):
      room_F = np.concatenate([np.full(rows, length) for rows, length in buckets])
      cost += room_F.sum() * num_devices
      by_device = np.sort(tokens.mask.sum(-1).reshape(num_devices, -1), axis=1)
      assert room_F.shape == by_device.shape[1:]
      assert bool(fits) <= bool((by_device <= room_F).all())
    costs.append(cost)
  assert costs == sorted(costs) and costs[-1] < 16 * 7 * 64 + 16 * 8 * 96
  assert costs[0] < 0.7 * (16 * 7 * 64 + 16 * 8 * 96)


def test_without_lengths_of_a_corpus_all_is_computed_at_full_length(make_retrieved_batch):
  batch = drawn(make_retrieved_batch)
  ((fits, way),) = ways_of(batch, ())
  assert fits and way is batch


@pytest.mark.parametrize("num_devices", [1, 2])
def test_parts_have_about_as_many_wordpieces_each(make_retrieved_batch, num_devices):
  batch, parts = drawn(make_retrieved_batch, queries=32), 4
  batch.joint.mask[:] &= np.arange(96) < np.random.default_rng(0).integers(5, 96, (32, 1, 1))
  mesh = partitioning.make_mesh(devices=jax.devices()[:num_devices])
  dealt = partitioning.on_mesh(mesh, lambda rows: lengths.balanced(rows, parts=parts))(batch)

  def spread(batch):
    by_part = batch.joint.mask.sum(axis=(1, 2)).reshape(num_devices, -1, parts).sum(axis=1)
    return np.ptp(np.asarray(by_part))

  assert spread(dealt) < 0.5 * spread(batch)
  for device in range(num_devices):
    rows = slice(device * 32 // num_devices, (device + 1) * 32 // num_devices)
    before, after = (
      sorted(map(tuple, np.asarray(b.passage_ids_BxK)[rows])) for b in (batch, dealt)
    )
    assert before == after
  rows = {tuple(ids): i for i, ids in enumerate(batch.passage_ids_BxK.tolist())}
  order = np.array([rows[tuple(ids)] for ids in np.asarray(dealt.passage_ids_BxK).tolist()])
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[order]), dealt, batch)


def test_every_device_orders_its_own_rows(make_tokens):
  mesh = partitioning.make_mesh(devices=jax.devices()[:4])
  tokens = make_tokens(np.random.default_rng(0), 64, 9, vocab_size=20)

  def encoded(tokens):
    dealt, scale_Fx1 = lengths.balanced(tokens, parts=2), jnp.ones((64, 1))
    encode_rows = functools.partial(encode, jnp.arange(20.0))
    return in_buckets(encode_rows, dealt, scale_Fx1, buckets=((10, 6), (6, 9)))

  batch = jax.device_put(tokens, partitioning.batch_sharding(mesh))
  program = jax.jit(partitioning.on_mesh(mesh, encoded)).lower(batch).compile()
  assert not re.search("all-|collective-", program.as_text() or "")
