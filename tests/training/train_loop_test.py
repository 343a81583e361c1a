"""The loop's order of calls, its ends, and what it writes; hosts that hold up the others."""

import errno
import functools
import io
import json
import os
import signal
import sys

import jax.numpy as jnp
import pytest

from realm_jax.launching.stop_signal import StopSignal
from realm_jax.training.run import metric_writers, optimizer, train_loop, train_program

OPTIMIZER = optimizer.make_optimizer(
  optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0), num_steps=100
)


def make_state(step=0):
  state = train_program.new_state(
    lambda key: {"reader": {"kernel": jnp.ones(2)}}, OPTIMIZER, seed=0
  )
  return state.replace(step=jnp.asarray(step, jnp.int32))


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
  writer = metric_writers.MetricWriter(tmp_path, step=int(state.step))
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


class GoneTerminal(io.StringIO):
  """A standard error that nobody shows any more."""

  def write(self, text):
    raise OSError(errno.EIO, "Input/output error")


def test_what_is_ignored_stops_nothing_and_only_who_insists_ends_a_run_at_once():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
  with StopSignal() as stop:
    os.kill(os.getpid(), signal.SIGHUP)
    assert not stop()
  assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN
  with StopSignal() as stop:
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGUSR1):  # shell and kernel send it each
      os.kill(os.getpid(), number)
    assert stop()
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_stop_signal_ends_after_the_current_step(tmp_path, number, monkeypatch, request):
  if number == signal.SIGHUP:
    monkeypatch.setattr(sys, "stderr", GoneTerminal())
    request.addfinalizer(functools.partial(signal.signal, number, signal.getsignal(number)))
    signal.signal(number, signal.SIG_DFL)  # which `nohup` has tests ignore
  before = signal.getsignal(number)
  hooked = []

  def step(state, batch):
    if batch == 2:
      os.kill(os.getpid(), number)
    return counting_step(state, batch)

  with StopSignal() as stop:
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


def hosts(*searches):
  return [{"data": 0.1, "search": search, "gather": 0.0} for search in searches]


def test_a_host_that_holds_up_the_others_is_named_with_its_reason():
  figures, line = train_loop.slowest(hosts(0.2, 0.3, 0.9), step_seconds=2.0)
  assert figures == {"hosts/slowest": 2, "hosts/slowest_seconds": 1.0, "hosts/median_seconds": 0.4}
  assert line == (
    "host 2 is slow, 1.000 s a step where the median host takes 0.400 s; most of it is search, "
    "0.900 s instead of 0.300 s"
  )


def test_a_difference_that_costs_less_than_a_tenth_of_a_step_is_not_worth_a_line():
  figures, line = train_loop.slowest(hosts(0.2, 0.2, 0.3), step_seconds=2.0)
  assert figures["hosts/slowest"] == 2 and line is None
