"""What a run appends to its directory: metrics, samples, swaps, and TensorBoard's events."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import logging
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.scalar import summary_v2 as scalar_summaries
from tensorboard.plugins.text import summary_v2 as text_summaries
from tensorboard.summary.writer.record_writer import RecordWriter

from realm_jax.devices import processes
from realm_jax.foundations import atomic_files, text_files
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training.run import alarms

METRICS_FILE, SAMPLES_FILE, SWAPS_FILE = "metrics.jsonl", "samples.jsonl", "swaps.jsonl"
_Event: Any = event_pb2.Event
_SessionLog: Any = event_pb2.SessionLog


class _JsonLines:
  """Appends rows with `step` and `seconds` (Unix time) to a file of JSON lines.

  Drops damaged rows, and those after `step`, which a resumed run will write again.

  Attributes:
    rows: The rows kept.
  """

  def __init__(self, directory: str | os.PathLike, name: str, *, step: int):
    os.makedirs(directory, exist_ok=True)
    self._path = os.path.join(directory, name)
    self.rows = [row for row in text_files.read_log(self._path) if row["step"] <= step]
    if os.path.exists(self._path):
      atomic_files.write_text(self._path, "".join(map(_line, self.rows)))

  def write(self, step: int, values: Mapping[str, Any]) -> None:
    with open(self._path, "a", encoding="utf-8") as file:
      file.write(_line({"step": step, "seconds": time.time(), **values}))


def _line(row: Mapping[str, Any]) -> str:
  return json.dumps(row, ensure_ascii=False) + "\n"


class SwapLog:
  """Appends each generation swapped in, with its step, to `swaps.jsonl`, in the first process."""

  def __init__(self, directory: str, *, step: int):
    self._rows = _JsonLines(directory, SWAPS_FILE, step=step) if processes.is_first() else None

  def write(self, step: int, loaded: LoadedGeneration) -> None:
    """Records that batches from `step` on use a generation."""
    if self._rows is not None:
      names = ("generation", "training_step", "created")
      self._rows.write(step, {name: getattr(loaded, name) for name in names})


class MetricWriter:
  """Writes metrics and texts of a run in the first process, and logs each alarm about them once.

  Scalars go to `metrics.jsonl`, texts to `samples.jsonl`, and both to a file of TensorBoard's
  events, written without TensorFlow, which would take seconds to import.

  Args:
    step: Steps taken; rows of later ones are dropped.
    min_entropy: See `alarms.find`.
    on_end: Called with an alarm of a run that has collapsed or diverged and not recovered.
    on_healthy: Called with a step whose metrics show nothing of the kind.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    *,
    step: int,
    min_entropy: float = alarms.MIN_ENTROPY,
    on_end: Callable[[alarms.Alarm], None] = lambda alarm: None,
    on_healthy: Callable[[int], None] = lambda step: None,
  ):
    self._writes = processes.is_first()
    if not self._writes:
      return
    self._metrics = _JsonLines(directory, METRICS_FILE, step=step)
    self._samples = _JsonLines(directory, SAMPLES_FILE, step=step)
    name = f"events.out.tfevents.{time.time_ns()}.{platform.node()}.{os.getpid()}"
    self._events = open(os.path.join(directory, name), "wb")
    self._records = RecordWriter(self._events)
    self._write_event(file_version="brain.Event:2")
    # TensorBoard drops what an earlier process wrote from this step on.
    start = _SessionLog(status=_SessionLog.START)
    self._write_event(step=step + 1, session_log=start)
    self._min_entropy, self._on_end, self._on_healthy = min_entropy, on_end, on_healthy
    self._rows = self._metrics.rows[-1:]  # from which the first row's changes are counted
    self._logged: set[tuple[str, int]] = set()

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    if not self._writes:
      return
    numbers = {name: float(np.asarray(value)) for name, value in scalars.items()}
    finite = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
    self._metrics.write(step, finite)
    for name, value in numbers.items():
      self._write_event(step=step, summary=scalar_summaries.scalar_pb(name, value))
    self._events.flush()
    self._rows.append({"step": step, **finite})
    found = alarms.find(self._rows, min_entropy=self._min_entropy)
    for alarm in found:
      if (alarm.name, alarm.first_step) not in self._logged:
        self._logged.add((alarm.name, alarm.first_step))
        logging.warning("ALARM: %s", alarm)
    if (alarm := alarms.ending(found, step=step)) is not None:
      self._on_end(alarm)
    if alarms.is_healthy(self._rows, min_entropy=self._min_entropy):
      self._on_healthy(step)

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    if not self._writes:
      return
    self._samples.write(step, texts)
    for name, text in texts.items():
      self._write_event(step=step, summary=text_summaries.text_pb(name, text))

  def flush(self) -> None:
    if self._writes:
      self._events.flush()

  def close(self) -> None:
    if self._writes:
      self._events.close()

  def _write_event(self, **content) -> None:
    self._records.write(_Event(wall_time=time.time(), **content).SerializeToString())
