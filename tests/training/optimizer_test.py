"""The optimizers against plain numpy and against optax."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm_jax.training.run import optimizer

LEARNING_RATE = 0.1


@pytest.fixture
def rtol(float_tolerance):
  """For a rate or an update: a norm over 44 numbers, and 12 operations per step for 5 steps."""
  return float_tolerance(depth=44 + 5 * 12)


def make_params():
  random = np.random.default_rng(0)
  return {
    "dual_encoder": {
      "dense": {"kernel": random.normal(size=(3, 4)), "bias": random.normal(size=4)},
      "mlp_norm": {"scale": random.normal(size=4), "bias": random.normal(size=4)},
      "position_embedding": random.normal(size=(5, 2)),
    },
    "knowledge_augmented_encoder": {"mlm_bias": random.normal(size=6)},
  }


def make(config):
  return optimizer.make_optimizer(config, num_steps=20)


def make_gradients(params, step):
  random = np.random.default_rng(step)
  scale = 10.0 ** (-step)  # the first are clipped, the last are not
  return jax.tree.map(lambda leaf: scale * random.normal(size=leaf.shape), params)


def take_steps(transformation, params, *, num_steps):
  params = jax.tree.map(jnp.asarray, params)
  state = transformation.init(params)
  for step in range(num_steps):
    gradients = jax.tree.map(jnp.asarray, make_gradients(params, step))
    updates, state = transformation.update(gradients, state, params)
    params = optax.apply_updates(params, updates)
  return params


def reference_bert_adam(params, *, num_steps, schedule, clip_norm, weight_decay, no_decay, factors):
  """BERT's released optimizer, written out."""
  leaves, structure = jax.tree.flatten(params)
  names = [
    "/".join(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)
  ]
  first = [np.zeros_like(leaf) for leaf in leaves]
  second = [np.zeros_like(leaf) for leaf in leaves]
  for step in range(num_steps):
    gradients = jax.tree.leaves(make_gradients(params, step))
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
    gradients = [g * min(1.0, clip_norm / norm) for g in gradients]
    for i, name in enumerate(names):
      first[i] = 0.9 * first[i] + 0.1 * gradients[i]
      second[i] = 0.999 * second[i] + 0.001 * gradients[i] ** 2
      update = first[i] / (np.sqrt(second[i]) + 1e-6)
      if name not in no_decay:
        update = update + weight_decay * leaves[i]
      leaves[i] = leaves[i] - schedule[step] * factors.get(name.split("/")[0], 1.0) * update
  return jax.tree.unflatten(structure, leaves)


def test_bert_adam_is_that_of_the_released_code(rtol):
  config = optimizer.OptimizerConfig(
    learning_rate=LEARNING_RATE,
    warmup_steps=2,
    weight_decay=0.3,
    learning_rate_factors=(("dual_encoder", 0.25),),
  )
  expected = reference_bert_adam(
    make_params(),
    num_steps=5,
    schedule=[0.0, 0.5 * LEARNING_RATE, *(LEARNING_RATE * (1 - step / 20) for step in (2, 3, 4))],
    clip_norm=1.0,
    weight_decay=0.3,
    no_decay={
      "dual_encoder/dense/bias",
      "dual_encoder/mlp_norm/scale",
      "dual_encoder/mlp_norm/bias",
      "knowledge_augmented_encoder/mlm_bias",
    },
    factors={"dual_encoder": 0.25},
  )
  params = take_steps(make(config), make_params(), num_steps=5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), params, expected)


@pytest.mark.parametrize(
  ("settings", "num_steps", "warmup"),
  [({}, 500, 50), ({}, 5000, 500), ({}, 200_000, 10_000), ({"warmup_steps": 300}, 1000, 300)],
)
def test_the_warm_up_meets_the_line_to_the_end_of_the_run(settings, num_steps, warmup, rtol):
  config = optimizer.OptimizerConfig(learning_rate=LEARNING_RATE, **settings)
  schedule = optimizer.learning_rate_schedule(config, num_steps=num_steps)
  for step in (0, warmup // 2, warmup - 1, warmup, num_steps // 2, num_steps, num_steps + 200):
    share = step / warmup if step < warmup else max(0, 1 - step / num_steps)
    expected = share * LEARNING_RATE
    np.testing.assert_allclose(schedule(step), expected, rtol=rtol, atol=rtol * LEARNING_RATE)


def test_adamw_is_that_of_optax_where_nothing_is_exempt(rtol):
  config = optimizer.OptimizerConfig(
    name="adamw",
    learning_rate=LEARNING_RATE,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.3,
    beta2=0.98,
  )
  params = {"reader": {"kernel": np.random.default_rng(1).normal(size=(3, 4))}}
  ours = take_steps(make(config), params, num_steps=5)
  adamw = optax.adamw(LEARNING_RATE, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.3)
  theirs = take_steps(optax.chain(optax.clip_by_global_norm(1.0), adamw), params, num_steps=5)
  np.testing.assert_allclose(ours["reader"]["kernel"], theirs["reader"]["kernel"], rtol=rtol)


@pytest.mark.parametrize("num_frozen", [1, 3])
def test_a_frozen_part_stands_still_for_its_steps_and_then_moves(num_frozen):
  settings = {"learning_rate": LEARNING_RATE, "warmup_steps": 0, "schedule": "constant"}
  frozen = optimizer.make_optimizer(
    optimizer.OptimizerConfig(frozen_steps=(("dual_encoder", num_frozen),), **settings),
    num_steps=20,
  )
  free = optimizer.make_optimizer(optimizer.OptimizerConfig(**settings), num_steps=20)
  start = jax.tree.map(jnp.asarray, make_params())
  still = take_steps(frozen, start, num_steps=num_frozen)
  jax.tree.map(np.testing.assert_array_equal, still["dual_encoder"], start["dual_encoder"])
  moved = take_steps(frozen, start, num_steps=num_frozen + 1)
  jax.tree.map(
    lambda before, after: np.testing.assert_array_less(0, np.max(np.abs(after - before))),
    still["dual_encoder"],
    moved["dual_encoder"],
  )
  never_frozen = take_steps(free, start, num_steps=num_frozen + 1)
  jax.tree.map(
    np.testing.assert_array_equal,
    moved["knowledge_augmented_encoder"],
    never_frozen["knowledge_augmented_encoder"],
  )


def test_frozen_parts_never_move_and_have_no_moments():
  config = optimizer.OptimizerConfig(
    learning_rate=LEARNING_RATE, warmup_steps=0, frozen_parts=("dual_encoder",)
  )
  free = dataclasses.replace(config, frozen_parts=())
  start = jax.tree.map(jnp.asarray, make_params())
  frozen, moved = (take_steps(make(c), start, num_steps=3) for c in (config, free))
  jax.tree.map(np.testing.assert_array_equal, frozen["dual_encoder"], start["dual_encoder"])
  leaf = jax.tree.leaves(moved["dual_encoder"])[0]
  assert np.max(np.abs(leaf - jax.tree.leaves(start["dual_encoder"])[0])) > 0
  sizes = [sum(leaf.size for leaf in jax.tree.leaves(make(c).init(start))) for c in (config, free)]
  missing = sum(leaf.size for leaf in jax.tree.leaves(start["dual_encoder"]))
  assert sizes[1] - sizes[0] == 2 * missing


@pytest.mark.parametrize(
  "setting",
  [{"learning_rate_factors": (("retriever", 0.1),)}, {"frozen_steps": (("retriever", 5),)}],
)
def test_a_setting_for_an_absent_part_is_refused(setting):
  config = optimizer.OptimizerConfig(**setting)
  message = r"\['retriever'\], the parameters have \['dual_encoder', 'knowledge_augmented"
  with pytest.raises(ValueError, match=message):
    take_steps(make(config), make_params(), num_steps=1)
