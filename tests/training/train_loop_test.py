"""The loop's order of calls, its ends, and what it writes."""

import json
import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices.datatypes import Mean
from realm_jax.training import checkpoints, metric_writers, optimizer, train_loop, train_state
from realm_jax.training.objective import LOSS, Loss
from realm_jax.training.train_step import make_train_step

OPTIMIZER = optimizer.make_optimizer(
  optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0), num_steps=100
)


def make_state(step=0):
  state = train_state.create(lambda key: {"reader": {"kernel": jnp.ones(2)}}, OPTIMIZER, seed=0)
  return state.replace(step=jnp.asarray(step, jnp.int32))


def summed(outputs):
  """Minimises the sum of a function of parameters, batch and key."""
  return Loss(outputs, lambda outputs, batch: {LOSS: Mean(jnp.sum(outputs), jnp.ones([]))})


class NumberedBatches:
  """Batch i is the number i; its only figure is i as well."""

  def __init__(self, *, first, calls=None):
    self.in_flight = first
    self.calls = [] if calls is None else calls

  def begin(self, params):
    assert params["reader"]["kernel"].shape == (2,)  # not yet donated
    self.calls.append(("begin", self.in_flight + 1))

  def finish(self):
    self.in_flight += 1
    self.calls.append(("finish", self.in_flight))
    return self.in_flight, {"figure": self.in_flight}


def counting_step(state, batch):
  return state.replace(step=state.step + 1), {"loss/total": jnp.float32(batch)}


def train(state, *, tmp_path, source=None, batch=None, **changes):
  writer = metric_writers.JsonLinesWriter(tmp_path, step=int(state.step))
  first = int(state.step)
  settings = {
    "train_step": counting_step,
    "source": source or NumberedBatches(first=first),
    "num_steps": 5,
    "hooks": [],
    "writer": writer,
    "log_every": 100,
    "stop": lambda: False,
  }
  state = train_loop.train(state, first if batch is None else batch, **{**settings, **changes})
  writer.close()
  return state


def written(tmp_path):
  lines = (tmp_path / metric_writers.METRICS_FILE).read_text("utf-8").splitlines()
  return [json.loads(line) for line in lines]


def test_the_next_batch_is_begun_before_a_step_is_sent_and_finished_after(tmp_path):
  calls = []

  def step(state, batch):
    calls.append(("step", batch))
    return counting_step(state, batch)

  def hook(taken, state):
    calls.append(("hook", taken))

  train(
    make_state(),
    tmp_path=tmp_path,
    source=NumberedBatches(first=0, calls=calls),
    train_step=step,
    hooks=[hook],
    num_steps=2,
  )
  assert calls == [
    ("begin", 1),
    ("step", 0),
    ("finish", 1),
    ("hook", 1),
    ("begin", 2),
    ("step", 1),
    ("finish", 2),
    ("hook", 2),
  ]


def test_begin_sees_parameters_that_the_step_donates(tmp_path):
  class Encodes(NumberedBatches):
    def begin(self, params):
      self.encoded = 2 * params["reader"]["kernel"]

    def finish(self):
      return np.asarray(self.encoded), {}

  step = jax.jit(
    make_train_step(
      summed(lambda params, batch, key: params["reader"]["kernel"] * batch), OPTIMIZER, seed=0
    ),
    donate_argnums=0,
  )
  state = train(
    make_state(),
    tmp_path=tmp_path,
    source=Encodes(first=0),
    batch=np.ones(2, np.float32),
    train_step=step,
  )
  assert int(state.step) == 5


def test_hooks_see_steps_state_and_batch_in_flight_that_belong_together(tmp_path):
  source = NumberedBatches(first=3)
  seen = []

  def hook(taken, state):
    seen.append((taken, int(state.step), source.in_flight))

  train(make_state(3), tmp_path=tmp_path, source=source, hooks=[hook])
  assert seen == [(4, 4, 4), (5, 5, 5)]


def test_means_are_of_the_steps_since_the_last_write(tmp_path):
  train(make_state(), tmp_path=tmp_path, log_every=2)
  lines = written(tmp_path)
  assert [(line["step"], line["loss/total"]) for line in lines] == [(2, 0.5), (4, 2.5), (5, 4.0)]
  # Of the first batch, made before the loop, no figure is known.
  assert [line["figure"] for line in lines] == [1, 2.5, 4]
  for line in lines:
    rate = line["throughput/steps_per_second"]
    assert rate > 0
    assert line["throughput/step_seconds"] == pytest.approx(1 / rate)


def test_the_parts_of_a_step_are_written(tmp_path):
  class SlowBatches(NumberedBatches):
    def begin(self, params):
      super().begin(params)
      time.sleep(0.02)

  train(make_state(), tmp_path=tmp_path, source=SlowBatches(first=0))
  (line,) = written(tmp_path)
  parts = {name: line[f"throughput/{name}_seconds"] for name in ("data", "device_wait", "swap")}
  assert parts["data"] > 0.02
  assert min(parts.values()) >= 0 and sum(parts.values()) < line["throughput/step_seconds"]


def test_further_steps_are_written_and_end_an_interval(tmp_path):
  train(make_state(), tmp_path=tmp_path, log_every=4, log_also=lambda step: step == 3)
  lines = written(tmp_path)
  assert [(line["step"], line["loss/total"]) for line in lines] == [(3, 1.0), (4, 3.0), (5, 4.0)]


def test_the_steps_before_a_stop_are_written(tmp_path):
  asked = []
  train(make_state(), tmp_path=tmp_path, stop=lambda: asked.append(1) or len(asked) == 3)
  assert [(line["step"], line["loss/total"]) for line in written(tmp_path)] == [(3, 1.0)]


def test_an_evaluation_is_part_of_the_row_of_its_step(tmp_path):
  asked = []

  def evaluate(step, state):
    asked.append((step, int(state.step)))
    return {"eval/loss": step} if step == 4 else {}

  train(make_state(), tmp_path=tmp_path, log_every=2, evaluate=evaluate)
  assert asked == [(2, 2), (4, 4), (5, 5)]
  assert [line.get("eval/loss") for line in written(tmp_path)] == [None, 4, None]


def test_a_finished_run_takes_no_step(tmp_path):
  source = NumberedBatches(first=5)
  state = train(make_state(5), tmp_path=tmp_path, source=source)
  assert int(state.step) == 5
  assert source.calls == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_after_the_current_step(tmp_path, number):
  before = signal.getsignal(number)
  hooked = []

  def step(state, batch):
    if batch == 2:
      os.kill(os.getpid(), number)
    return counting_step(state, batch)

  with train_loop.StopSignal() as stop:
    state = train(
      make_state(),
      tmp_path=tmp_path,
      train_step=step,
      stop=stop,
      hooks=[lambda taken, state: hooked.append(taken)],
    )
    assert stop()
  assert int(state.step) == 3
  assert hooked == [1, 2, 3]
  assert signal.getsignal(number) is before


def test_asked_twice_it_ends_at_once():
  with train_loop.StopSignal() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop()
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGTERM)
      stop()


def test_progress_names_step_loss_and_rate(tmp_path, capsys):
  train(make_state(), tmp_path=tmp_path, log_every=4)
  lines = capsys.readouterr().err.splitlines()
  assert lines[0].startswith("step 4/5  loss 1.500  ")
  assert "steps/s  0:00:00 left" in lines[0]
  assert len(lines) == 2


class Rows:
  """Batches of random rows from a position that can be set."""

  def __init__(self):
    self.position = 0

  def __next__(self):
    random = np.random.default_rng(self.position)
    self.position += 1
    return {"x": random.normal(size=2).astype(np.float32)}


def test_a_run_stopped_and_resumed_has_the_losses_of_one_that_was_not(tmp_path):
  def squared_error(params, batch, key):
    noise = jax.random.normal(key, batch["x"].shape)
    return (params["reader"]["kernel"] - batch["x"] - noise) ** 2

  step = jax.jit(make_train_step(summed(squared_error), OPTIMIZER, seed=0))
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), make_state()
  )

  def run(name, *, until, directory):
    """Runs to a step like a process: restore, train, save."""
    rows = Rows()
    source = train_loop.PlainBatches(rows, place=jax.device_put)
    with checkpoints.Checkpointer(directory) as checkpointer:
      resumed = checkpointer.restore(abstract)
      if resumed is None:
        state = make_state()
        source.begin(state.params)
        batch, _ = source.finish()
      else:
        state = resumed.state
        rows.position = int(resumed.input["position"]["row"])
        batch = source.resume(resumed.input["batch"])
      state = train(
        state,
        tmp_path=tmp_path / name,
        source=source,
        batch=batch,
        train_step=step,
        num_steps=6,
        log_every=1,
        stop=lambda: False,
        hooks=[
          lambda taken, state: (
            checkpointer.save(
              taken,
              state,
              input={
                "position": {"row": np.array(rows.position)},
                "batch": source.in_flight(),
              },
              metadata={},
            )
            if taken == until
            else None
          )
        ],
      )
    return state

  whole = run("whole", until=None, directory=tmp_path / "whole_checkpoints")
  run("cut", until=3, directory=tmp_path / "checkpoints")
  resumed = run("rest", until=None, directory=tmp_path / "checkpoints")
  assert [line["loss/total"] for line in written(tmp_path / "rest")] == [
    line["loss/total"] for line in written(tmp_path / "whole")[3:]
  ]
  jax.tree.map(np.testing.assert_array_equal, resumed, whole)
