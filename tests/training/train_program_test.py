"""One step: what it may change, and what its result depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Mean
from realm_jax.objectives.objective import LOSS, Loss
from realm_jax.training.run import optimizer, train_program
from realm_jax.training.run.train_program import TrainProgram, make_train_step

OPTIMIZER = optimizer.make_optimizer(
  optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0), num_steps=100
)


@pytest.fixture
def rtol(float_tolerance):
  """For sums over 8 examples of 3 features, in the loss, its gradient and the gradient's norm."""
  return float_tolerance(depth=3 * 8 * 3)


def init_params(key):
  return {"reader": {"kernel": jax.random.normal(key, (3, 2)), "bias": jnp.zeros(2)}}


def predictions(params, batch, key):
  """A linear map, which ignores the key."""
  del key
  return batch["x"] @ params["reader"]["kernel"] + params["reader"]["bias"][None]


def predictions_with_dropout(params, batch, key):
  keep = jax.random.bernoulli(key, 0.5, batch["x"].shape)
  return predictions(params, {**batch, "x": jnp.where(keep, batch["x"], 0)}, key)


def squared_error(predicted, batch):
  return {LOSS: Mean(jnp.sum((predicted - batch["y"]) ** 2), jnp.float32(predicted.size))}


regression = Loss(predictions, squared_error)
with_dropout = Loss(predictions_with_dropout, squared_error)


def make_batch(seed=0, size=8):
  random = np.random.default_rng(seed)
  return {"x": random.normal(size=(size, 3)), "y": random.normal(size=(size, 2))}


def make_state(seed=0):
  return train_program.new_state(init_params, OPTIMIZER, seed=seed)


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
    learning_rate=0.1, warmup_steps=0, frozen_steps=(("reader", 1),)
  )
  transformation = optimizer.make_optimizer(config, num_steps=2)
  step = jax.jit(make_train_step(regression, transformation, seed=0))
  start = train_program.new_state(init_params, transformation, seed=0)
  first = make_batch(1)
  first["x"][0, 0] = np.nan if skipped else 0
  frozen, _ = step(start, first)
  assert_trees_equal(frozen.params, start.params)
  thawed, _ = step(frozen, make_batch(2))
  assert (thawed.params["reader"]["kernel"] != start.params["reader"]["kernel"]).all()
  ended, _ = step(thawed, make_batch(3))  # the rate is 0 from step 2 on
  assert_trees_equal(ended.params, thawed.params)


def test_the_dropout_key_depends_on_seed_and_step_alone():
  def outputs(params, batch, key):
    del params
    return jnp.broadcast_to(jax.random.uniform(key), (len(batch["x"]),))

  def score(drawn_B, batch):
    del batch
    return {LOSS: Mean.of(drawn_B, jnp.ones_like(drawn_B))}

  def drawn(*, seed, step, state_seed=0, batch_seed=0):
    state = make_state(state_seed).replace(step=jnp.asarray(step, jnp.int32))
    train_step = make_train_step(Loss(outputs, score), OPTIMIZER, seed=seed)
    return float(train_step(state, make_batch(batch_seed))[1][LOSS])

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
    found.append(float(metrics[LOSS]))
  return found


def test_runs_that_differ_in_their_seed_share_the_compiled_step():
  compiled = set()
  for seed in (3, 4, 2**32 + 3):  # of which the low 32 bits count
    program = TrainProgram(
      mesh=partitioning.make_mesh(devices=jax.devices()[:1]),
      init_params=init_params,
      objective=with_dropout,
      optimizer=OPTIMIZER,
      seed=seed,
      accumulate_steps=1,
      layout="replicated",
    )
    state = program.new_state()
    assert_trees_equal(state.params, make_state(seed).params)
    compiled.add(program.jitted_step.lower(state, make_batch(), np.int32(0)).as_text())
    _, metrics = program.train_step(state, make_batch())
    assert float(metrics[LOSS]) == losses(seed=seed % 2**32, num_steps=1)[0]
  assert len(compiled) == 1


def test_compiler_options_of_the_user_take_precedence(monkeypatch):
  name = "xla_gpu_dot_merger_threshold_mb"
  monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=4")
  assert train_program.compiler_options("gpu") == {name: "0"}
  assert not train_program.compiler_options("cpu") and not train_program.compiler_options("tpu")
  monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_autotune_level=4 --{name}=32")
  assert not train_program.compiler_options("gpu")
