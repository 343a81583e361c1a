"""The training loop, the same for every objective.

Invariants: the next batch is begun before the step is dispatched, so that the device works on both
while the host searches; nothing waits for the step just dispatched; hooks run between steps, when
the state and the next batch belong together.
"""

import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from realm_jax.devices import processes
from realm_jax.foundations import object_store, progress
from realm_jax.training.run.batch_sources import BatchSource
from realm_jax.training.run.metric_writers import MetricWriter
from realm_jax.training.run.train_program import TrainState

# Where a step's time is a host's own; the rest is waiting for devices, and so for other hosts.
_OWN = ("data", "swap", "search", "gather", "transfer")
_SLOW_SHARE = 0.1  # of a step


def compare(step: int, means: Mapping[str, float]) -> dict[str, float]:
  """Returns metrics of the slowest of several hosts and names it in the log if it matters.

  All processes must call it together. With one process there is nothing to compare.
  """
  own = {part: means.get(f"throughput/{part}_seconds", 0.0) for part in _OWN}
  hosts = processes.share(own)
  if len(hosts) == 1:
    return {}
  metrics, line = slowest(hosts, step_seconds=means["throughput/step_seconds"])
  if line and processes.is_first():
    logging.warning("step %d: %s", step, line)
  return metrics


def slowest(
  hosts: Sequence[Mapping[str, float]], *, step_seconds: float
) -> tuple[dict[str, float], str | None]:
  """Returns metrics of the slowest host, and a line about it if it costs a tenth of a step.

  Each host has the seconds per step that its parts take.
  """
  totals = np.array([sum(parts.values()) for parts in hosts])
  worst, median = int(totals.argmax()), float(np.median(totals))
  metrics = {
    "hosts/slowest": worst,
    "hosts/slowest_seconds": float(totals[worst]),
    "hosts/median_seconds": median,
  }
  if totals[worst] - median < _SLOW_SHARE * step_seconds:
    return metrics, None
  typical = {part: float(np.median([parts[part] for parts in hosts])) for part in hosts[worst]}
  part = max(typical, key=lambda name: hosts[worst][name] - typical[name])
  return metrics, (
    f"host {worst} is slow, {totals[worst]:.3f} s a step where the median host takes "
    f"{median:.3f} s; most of it is {part}, {hosts[worst][part]:.3f} s instead of "
    f"{typical[part]:.3f} s"
  )


# Timed activities other than steps.
_ACTIVITIES = ("data", "index_wait", "swap")

Hook = Callable[[int, TrainState], None]
Evaluate = Callable[[int, TrainState], dict[str, float]]


def train(
  state: TrainState,
  batch: Any,
  *,
  train_step: Callable[[TrainState, Any], tuple[TrainState, dict[str, jax.Array]]],
  source: BatchSource,
  num_steps: int,
  hooks: Sequence[Hook],
  writer: MetricWriter,
  log_every: int,
  stop: Callable[[], bool],
  log_also: Callable[[int], bool] = lambda step: False,
  evaluate: Evaluate = lambda step, state: {},
) -> TrainState:
  """Trains until `num_steps`, or until told to stop.

  Args:
    state: The initial state; its buffers are donated.
    batch: Batch of the first step.
    source: Source of the following batches.
    num_steps: Total steps of the run, including those already taken.
    hooks: Called as `hook(steps taken, state)` after each step.
    writer: Receives the means of the metrics since the last write.
    log_every: Steps between writes; the last step is written as well.
    stop: Called after each step; True ends the run.
    log_also: Further steps to write. With the steps of the checkpoints among them, a killed and
      resumed run writes the same rows as an uninterrupted one.
    evaluate: Returns further metrics for a step to be written; empty if none are due.
  """
  interval = _Interval()
  line = _ProgressLine(last=num_steps)
  of_batch: dict[str, float] = {}
  for step in range(int(state.step), num_steps):
    with progress.activities.during("data"):
      source.begin(state.params)
    state, metrics = train_step(state, batch)
    interval.add(metrics, of_batch)
    batch, of_batch = source.finish()
    taken = step + 1
    stopping = stop()
    if taken % log_every == 0 or taken == num_steps or stopping or log_also(taken):
      means = interval.means()
      means |= compare(taken, means)
      writer.write_scalars(taken, {**means, **evaluate(taken, state)})
      stopping = stop() or stopping  # an evaluation may take minutes
      line.show(taken, means)
      interval = _Interval()
    for hook in hooks:
      hook(taken, state)
    if stopping:
      break
  line.end()
  return state


class StepTrace(contextlib.AbstractContextManager["StepTrace"]):
  """Traces some steps with `jax.profiler` on the first process; use as a context manager.

  Args:
    directory: The trace goes to `plugins/profile` in it, where TensorBoard finds it.
    steps: The first step and the one after the last; empty for none.
  """

  def __init__(self, directory: str, steps: Sequence[int]):
    self._directory = directory
    self._first, self._stop = steps if steps and processes.is_first() else (-1, -1)
    self._local: str | None = None  # while tracing

  def __exit__(self, *_):
    self._finish()

  def after_step(self, taken: int, state) -> None:
    """Starts or ends the trace when as many steps are taken; a hook of the training loop."""
    if taken == self._stop:
      jax.block_until_ready(state)  # the last step belongs to the trace
      self._finish()
    elif self._first <= taken < self._stop and self._local is None:
      remote = object_store.is_remote(self._directory)
      self._local = tempfile.mkdtemp(prefix="realm_trace_") if remote else self._directory
      jax.profiler.start_trace(self._local)

  def _finish(self) -> None:
    if self._local is None:
      return
    jax.profiler.stop_trace()
    if self._local != self._directory:
      for file in pathlib.Path(self._local).rglob("*"):
        if file.is_file():
          name = file.relative_to(self._local).as_posix()
          (object_store.absolute(self._directory) / name).write_bytes(file.read_bytes())
      shutil.rmtree(self._local)
    self._local = None


class _Interval:
  """Metrics since the last write; device values stay on the device until then."""

  def __init__(self):
    self._metrics: list[dict] = []
    self._of_batches: list[dict] = []
    self._started, self._spent = time.perf_counter(), progress.activities.totals.copy()

  def add(self, metrics: dict, of_batch: dict[str, float]) -> None:
    self._metrics.append(metrics)
    self._of_batches.append(of_batch)

  def means(self) -> dict[str, float]:
    began = time.perf_counter()
    metrics = jax.device_get(self._metrics)
    ended, spent = time.perf_counter(), progress.activities.totals.copy()
    seconds = ended - self._started
    means = {}
    for rows in (metrics, self._of_batches):
      for name in rows[-1]:
        values = [row[name] for row in rows if name in row]
        # Counts and states are those of the last step.
        last = np.issubdtype(np.asarray(values[-1]).dtype, np.integer) and rows is metrics
        # A skipped step leaves no trace in the means of those that were taken.
        finite = [value for value in values if np.isfinite(value)]
        means[name] = float(values[-1] if last else np.mean(finite or values))
    means["throughput/step_seconds"] = seconds / len(metrics)
    means["throughput/steps_per_second"] = len(metrics) / seconds
    means["throughput/device_wait_seconds"] = (ended - began) / len(metrics)
    for name in _ACTIVITIES:
      taken = spent[name] - self._spent[name]
      means[f"throughput/{name}_seconds"] = taken / len(metrics)
    return means


class _ProgressLine:
  """Shows step, loss, rate and time left: in place on a terminal, otherwise as plain lines."""

  def __init__(self, *, last: int):
    self._last = last
    self._terminal = processes.is_first() and sys.stderr.isatty()

  def show(self, step: int, means: dict[str, float]) -> None:
    if not processes.is_first():
      return
    rate = means["throughput/steps_per_second"]
    left = int((self._last - step) / max(rate, 1e-9))
    text = (
      f"step {step:,}/{self._last:,}  loss {means.get('loss/total', float('nan')):.3f}  "
      f"{rate:.2f} steps/s  {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
    )
    end = "\033[K\r" if self._terminal else "\n"
    with contextlib.suppress(OSError):  # of a terminal that is gone
      print(text, end=end, file=sys.stderr, flush=True)

  def end(self) -> None:
    with contextlib.suppress(OSError):
      print(end="\n" * self._terminal, file=sys.stderr)
