"""The guard lets the dual encoder go when retrieval helps, and holds it when it does not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax import partitioning
from realm_jax.datatypes import Mean
from realm_jax.training import guard, optimizer, train_state
from realm_jax.training.alarms import AlarmSettings
from realm_jax.training.objective import LOSS, Objective
from realm_jax.training.train_program import TrainProgram
from realm_jax.training.train_step import make_train_step

OPTIMIZER = optimizer.make_optimizer(
  optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0, schedule="constant"), num_steps=100
)
CONFIG = guard.GuardConfig(window=4, measure_every=2, ramp_steps=2)
GOOD = {"utility": 1.0, "others": 0.1, "entropy": 0.5, "null_mass": 0.2, "hub_share": 0.1}


def init_params(key):
  del key
  return {"dual_encoder": {"kernel": jnp.ones(2)}, "reader": {"kernel": jnp.ones(2)}}


def score(products_Bx2, batch):
  del products_Bx2
  one = jnp.float32(1)
  return {
    "retrieval/retrieval_utility": Mean(batch["utility"][0], one),
    "retrieval/retrieval_entropy": Mean(batch["entropy"][0], one),
    "retrieval/null_mass": Mean(batch["null_mass"][0], one),
  }


def outputs(params, batch, key):
  del key
  return batch["x"] * jnp.stack([tree["kernel"].sum() for tree in params.values()])[None]


OBJECTIVE = Objective(
  outputs, lambda out, batch: {LOSS: Mean(jnp.sum(out**2), jnp.float32(1)), **score(out, batch)}
)


def make_guard(**settings):
  return guard.Guard(
    dataclasses.replace(CONFIG, **settings),
    AlarmSettings(),
    shuffled=lambda batch: {**batch, "utility": batch["others"]},
    hub_share=lambda batch: batch["hub_share"][0],
  )


class Run:
  """A training with given metrics for each step."""

  def __init__(self, **settings):
    program = TrainProgram(
      mesh=partitioning.make_mesh(devices=jax.devices()[:1]),
      init_params=init_params,
      objective=OBJECTIVE,
      optimizer=OPTIMIZER,
      seed=0,
      accumulate_steps=1,
      layout="replicated",
      guard=make_guard(**settings),
    )
    self.state = program.new_state()
    self._step = program.steps_from(0)
    self.rows = []

  def take(self, num_steps, **figures):
    """Returns whether the dual encoder moved in each step."""
    batch = {name: np.full(2, value, np.float32) for name, value in {**GOOD, **figures}.items()}
    moved = []
    for _ in range(num_steps):
      before = jax.device_get(self.state.params)
      self.state, metrics = self._step(self.state, {**batch, "x": np.ones((2, 2), np.float32)})
      self.rows.append({name: float(value) for name, value in metrics.items()})
      differ = jax.tree.map(lambda a, b: bool((a != b).all()), before, dict(self.state.params))
      assert differ["reader"]["kernel"]
      moved.append(differ["dual_encoder"]["kernel"])
    return moved

  @property
  def words(self):
    return guard.words(self.rows[-1])


@pytest.mark.parametrize(
  "useless", [{"utility": 0.04}, {"others": 0.97}, {"utility": -1.0, "others": -2.0}]
)
def test_a_dual_encoder_without_use_stands_still_and_gathers_no_moments(useless):
  run = Run()
  assert not any(run.take(9, **useless))
  mu = run.state.opt_state[1].mu
  assert (mu["dual_encoder"]["kernel"] == 0).all() and (mu["reader"]["kernel"] != 0).all()
  assert run.words.startswith("held: passages help no more than none, or than those of other quer")
  assert bool(run.state.teaching)


def test_it_is_let_go_gradually_once_retrieval_helps():
  run = Run()
  assert run.take(7) == [False] * 4 + [True] * 3
  assert [row["guard/scale"] for row in run.rows] == [0, 0, 0, 0, 0.5, 1, 1]
  assert "let go: retrieval helps (since step 4; utility 1.000, utility over shuffled" in run.words
  assert not bool(run.state.teaching)


@pytest.mark.parametrize(
  ("figures", "cause"),
  [
    ({"hub_share": 0.9}, "held: one passage is retrieved for most queries"),
    ({"entropy": 0.001}, "held: one passage has all the probability"),
    ({"null_mass": 0.99}, "held: the null passage has all the probability"),
    ({"utility": -0.5}, "held: passages help no more than none"),
  ],
)
def test_it_is_held_again_when_retrieval_collapses(figures, cause):
  run = Run(window=2)
  run.take(20)
  assert run.take(12, **figures)[-4:] == [False] * 4
  assert cause in run.words
  assert run.take(20)[-1]


def test_what_taught_to_read_is_no_evidence():
  run = Run()
  for _ in range(6):
    run.take(1, utility=-0.1)  # the batches of even steps are as they were retrieved
    run.take(1, utility=5.0)
  assert "held" in run.words


def test_a_new_state_has_the_types_of_a_restored_one():
  """A weak type, which no checkpoint keeps, would have a resumed run compile another step."""
  assert not any(leaf.weak_type for leaf in jax.tree.leaves(Run().state))


def test_a_guard_that_is_off_changes_nothing():
  run, plain = Run(enabled=False), train_state.create(init_params, OPTIMIZER, seed=0)
  step = jax.jit(make_train_step(OBJECTIVE, OPTIMIZER, seed=0))
  batch = {name: np.full(2, value, np.float32) for name, value in GOOD.items()}
  plain, _ = step(plain, {**batch, "x": np.ones((2, 2), np.float32)})
  assert run.take(1, utility=-1.0) == [True]
  jax.tree.map(np.testing.assert_array_equal, run.state.params, plain.params)
  assert guard.words(run.rows[-1]) is None and not bool(run.state.teaching)


@pytest.mark.parametrize("settings", [{"measure_every": 3}, {"window": 10}, {"measure_every": 0}])
def test_measurements_lie_in_the_window_and_in_batches_that_teach_nothing(settings):
  with pytest.raises(ValueError, match="give an even number of steps within the window"):
    guard.GuardConfig(**settings)
