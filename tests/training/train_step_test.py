"""One step: what it may change, and what its outcome depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm_jax.training import optimizer, train_state
from realm_jax.training.train_step import make_train_step

OPTIMIZER = optimizer.make_optimizer(
  optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0, num_steps=100)
)


@pytest.fixture
def rtol(float_tolerance):
  """Of sums over 8 examples of 3 features, in the loss, its gradient and the norm of that."""
  return float_tolerance(depth=3 * 8 * 3)


def init_params(key):
  return {"reader": {"kernel": jax.random.normal(key, (3, 2)), "bias": jnp.zeros(2)}}


def regression(params, batch, key):
  """Squared error of a linear map, with no use for the key."""
  del key
  predicted = batch["x"] @ params["reader"]["kernel"] + params["reader"]["bias"][None]
  loss = jnp.mean((predicted - batch["y"]) ** 2)
  return loss, {"loss": loss}


def with_dropout(params, batch, key):
  keep = jax.random.bernoulli(key, 0.5, batch["x"].shape)
  loss, metrics = regression(params, {**batch, "x": jnp.where(keep, batch["x"], 0)}, key)
  return loss, {**metrics, "drawn": jax.random.uniform(key)}


def make_batch(seed=0, size=8):
  random = np.random.default_rng(seed)
  return {"x": random.normal(size=(size, 3)), "y": random.normal(size=(size, 2))}


def make_state(seed=0):
  return train_state.create(init_params, OPTIMIZER, seed=seed)


def without_schedules(state):
  kept = [part for part in state.opt_state if not isinstance(part, optax.ScaleByScheduleState)]
  assert len(kept) == len(state.opt_state) - 2
  return kept


def assert_trees_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(bad):
  step = jax.jit(make_train_step(regression, OPTIMIZER, seed=0))
  before, _ = step(make_state(), make_batch())
  broken = make_batch(1)
  broken["x"][2, 1] = bad
  after, metrics = step(before, broken)
  assert_trees_equal(after.params, before.params)
  assert_trees_equal(without_schedules(after), without_schedules(before))
  assert int(after.step) == 2
  assert int(after.skipped_steps) == int(metrics["skipped_steps"]) == 1
  last, metrics = step(after, make_batch(2))
  assert int(metrics["skipped_steps"]) == 1
  assert (last.params["reader"]["kernel"] != after.params["reader"]["kernel"]).all()


@pytest.mark.parametrize("skipped", [False, True])
def test_schedules_go_on_over_a_skipped_step(skipped):
  config = optimizer.OptimizerConfig(
    learning_rate=0.1, warmup_steps=0, num_steps=2, frozen_steps=(("reader", 1),)
  )
  transformation = optimizer.make_optimizer(config)
  step = jax.jit(make_train_step(regression, transformation, seed=0))
  start = train_state.create(init_params, transformation, seed=0)
  first = make_batch(1)
  first["x"][0, 0] = np.nan if skipped else 0
  frozen, _ = step(start, first)
  assert_trees_equal(frozen.params, start.params)
  thawed, _ = step(frozen, make_batch(2))
  assert (thawed.params["reader"]["kernel"] != start.params["reader"]["kernel"]).all()
  ended, _ = step(thawed, make_batch(3))  # the rate is 0 from step 2 on
  assert_trees_equal(ended.params, thawed.params)


def test_the_gradient_norm_is_that_before_clipping(rtol):
  _, metrics = make_train_step(regression, OPTIMIZER, seed=0)(make_state(), make_batch())
  gradients = jax.grad(lambda params: regression(params, make_batch(), None)[0])(
    make_state().params
  )
  norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradients)))
  assert norm > 1
  np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=rtol)


def test_accumulation_in_parts_equals_one_batch(rtol):
  whole, whole_metrics = make_train_step(regression, OPTIMIZER, seed=0)(make_state(), make_batch())
  parts, parts_metrics = make_train_step(regression, OPTIMIZER, seed=0, accumulate_steps=4)(
    make_state(), make_batch()
  )
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), parts, whole)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), parts_metrics, whole_metrics
  )


def test_every_part_drops_out_differently():
  step = make_train_step(with_dropout, OPTIMIZER, seed=0, accumulate_steps=2)
  twice = jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=0), make_batch(size=4))
  one_key = make_train_step(with_dropout, OPTIMIZER, seed=0)
  _, accumulated = step(make_state(), twice)
  _, single = one_key(make_state(), make_batch(size=4))
  assert float(accumulated["drawn"]) != float(single["drawn"])
  assert float(accumulated["loss"]) != float(single["loss"])


def test_a_batch_that_cannot_be_cut_is_refused():
  step = make_train_step(regression, OPTIMIZER, seed=0, accumulate_steps=3)
  with pytest.raises(ValueError, match="a batch of 8 cannot be cut into 3 equal parts; change"):
    step(make_state(), make_batch())


def test_the_dropout_key_depends_on_seed_and_step_alone():
  def drawn(*, seed, step, state_seed=0, batch_seed=0):
    state = make_state(state_seed).replace(step=jnp.asarray(step, jnp.int32))
    train_step = make_train_step(with_dropout, OPTIMIZER, seed=seed)
    return float(train_step(state, make_batch(batch_seed))[1]["drawn"])

  base = drawn(seed=0, step=5)
  assert drawn(seed=0, step=5, state_seed=1, batch_seed=1) == base
  assert drawn(seed=0, step=6) != base
  assert drawn(seed=1, step=5) != base


def losses(*, seed, num_steps=5):
  step = jax.jit(make_train_step(with_dropout, OPTIMIZER, seed=seed), donate_argnums=0)
  state = make_state(seed)
  found = []
  for number in range(num_steps):
    state, metrics = step(state, make_batch(number))
    found.append(float(metrics["loss"]))
  return found


def test_the_same_seed_gives_the_same_losses():
  assert losses(seed=3) == losses(seed=3)
  assert losses(seed=3) != losses(seed=4)


def test_training_lowers_the_loss():
  step = jax.jit(make_train_step(regression, OPTIMIZER, seed=0))
  state, batch = make_state(), make_batch()
  _, first = step(state, batch)
  for _ in range(30):
    state, metrics = step(state, batch)
  assert float(metrics["loss"]) < 0.5 * float(first["loss"])
