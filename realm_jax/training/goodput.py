"""Goodput: the share of a run's time that went into steps that count, and where the rest went.

The first process appends how its time was spent to `goodput.jsonl`. A row ends at `seconds` (Unix
time), reaches back as long as the activities in `spent` took together, and has the step being
worked on. What lies between two rows is a disruption: a process died and another one took over.
Steps after the one that it resumed from were done twice.
"""

import dataclasses
import datetime
import errno
import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import jax
from absl import logging

from realm_jax import stopwatch
from realm_jax.training import metric_writers

GOODPUT_FILE = "goodput.jsonl"
STEP, COMPILE, CHECKPOINT, EVALUATION = "step", "compile", "checkpoint", "evaluation"
_PRODUCTIVE, _REPEATED, _DISRUPTION = "productive steps", "steps done twice", "disruption"
_WORDS = {
  STEP: _PRODUCTIVE,
  stopwatch.START: "start",
  COMPILE: "compilation",
  "data": "data",
  "index_wait": "waiting for an index",
  "swap": "swap of an index",
  CHECKPOINT: "checkpoints",
  EVALUATION: "evaluation",
}
_LEAST_SECONDS, _MOST_SECONDS, _SHARE = 0.5, 60.0, 0.01


def _count_compilation(event: str, duration_secs: float, **_) -> None:
  own = threading.current_thread() is threading.main_thread()
  if own and event.startswith("/jax/core/compile/"):
    stopwatch.job.move(duration_secs, COMPILE)


# From the import on, because a run compiles before it has a log.
jax.monitoring.register_event_duration_secs_listener(_count_compilation)


class GoodputLog:
  """Writes how the time of `stopwatch.job` is spent.

  A thread writes often enough that a killed process loses a hundredth of its time, or half a
  second.

  Attributes:
    step: The step being worked on.
    finished: Whether the run has ended, so that the time until it is extended does not count.
  """

  def __init__(self, directory: str | None, *, step: int):
    self.step, self.finished = step, False
    self._path = None if directory is None else os.path.join(directory, GOODPUT_FILE)
    self._resumed: dict[str, int] = {"resumed": step}
    self._written: Mapping[str, float] = {}
    self._lock, self._closed = threading.Lock(), threading.Event()
    if self._path is not None:
      metric_writers.drop_rows_after(self._path, sys.maxsize)  # a truncated last row
      self._thread = threading.Thread(target=self._write_regularly, daemon=True)
      self._thread.start()

  def write(self) -> None:
    """Appends the time since the last row."""
    if self._path is None:
      return
    with self._lock:
      totals = stopwatch.job.totals()
      spent = {name: seconds - self._written.get(name, 0.0) for name, seconds in totals.items()}
      row = {
        "step": self.step,
        "seconds": time.time(),
        "spent": {name: round(seconds, 6) for name, seconds in spent.items() if seconds},
        **self._resumed,
        **({"finished": True} if self.finished else {}),
      }
      try:
        _append(self._path, json.dumps(row) + "\n")
      except OSError as error:  # such as a full disk: the next row has this time as well
        logging.warning("could not write %s, will retry: %s", self._path, error)
        return
      self._written, self._resumed = totals, {}

  def close(self) -> None:
    """Writes the last row and prints the account of the run."""
    if self._path is not None:
      self._closed.set()
      self._thread.join()
      self.write()
      with open(self._path, encoding="utf-8") as file:
        spent = account([json.loads(line) for line in file])
      if spent.goodput > 0:  # a run of no steps has nothing to account for
        print(spent, flush=True)
    stopwatch.job.restart()

  def _write_regularly(self) -> None:
    began = time.monotonic()
    while not self._closed.wait(
      min(max(_SHARE * (time.monotonic() - began), _LEAST_SECONDS), _MOST_SECONDS)
    ):
      self.write()


@dataclasses.dataclass(frozen=True)
class Account:
  """How a run's time was spent.

  Attributes:
    seconds: Seconds by what they went into; all of them are the wall time.
  """

  seconds: Mapping[str, float]

  @property
  def wall(self) -> float:
    """Seconds from the start of the first process to the last row, while the run had not ended."""
    return sum(self.seconds.values())

  @property
  def goodput(self) -> float:
    """Share of the wall time that went into steps that count."""
    return self.seconds[_PRODUCTIVE] / self.wall if self.wall else math.nan

  def table(self) -> list[tuple[str, float, float]]:
    """Returns a name, seconds and share for everything that took time."""
    return [(name, s, s / self.wall) for name, s in self.seconds.items() if s]

  def __str__(self) -> str:
    wall = datetime.timedelta(seconds=round(self.wall))
    rest = ", ".join(f"{n} {share:.1%}" for n, _, share in self.table() if n != _PRODUCTIVE)
    return f"goodput {self.goodput:.1%} of {wall} (the rest: {rest})"


def account(rows: Sequence[Mapping]) -> Account:
  """Returns how the time of the rows of `goodput.jsonl` was spent."""
  seconds = dict.fromkeys((*_WORDS.values(), _DISRUPTION, _REPEATED), 0.0)
  preserved, next_began = math.inf, math.inf
  for row in reversed(rows):
    for activity, spent in row["spent"].items():
      lost = activity == STEP and row["step"] > preserved
      seconds[_REPEATED if lost else _WORDS[activity]] += spent
    if next_began < math.inf and not row.get("finished"):
      # A clock that was set back has no time between two rows.
      seconds[_DISRUPTION] += max(0.0, next_began - row["seconds"])
    next_began = row["seconds"] - sum(row["spent"].values())
    preserved = min(preserved, row.get("resumed", math.inf))
  return Account(seconds)


def _append(path: str, line: str) -> None:
  """Appends a line whole or not at all."""
  content = line.encode()
  with open(path, "ab", buffering=0) as file:
    size = file.tell()
    try:
      if file.write(content) < len(content):  # what still fitted on the disk
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
      file.truncate(size)
      raise
