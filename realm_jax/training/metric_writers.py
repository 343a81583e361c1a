"""Writers of metrics: `metrics.jsonl`, and files for TensorBoard, written without TensorFlow."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from absl import logging
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.scalar import summary_v2 as scalar_summaries
from tensorboard.plugins.text import summary_v2 as text_summaries
from tensorboard.summary.writer.record_writer import RecordWriter

from realm_jax.devices import processes
from realm_jax.foundations import atomic_files
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training import alarms, metric_writers

SWAPS_FILE = "swaps.jsonl"


class SwapLog:
  """Appends each generation swapped in, with its step, to `swaps.jsonl`; drops later rows."""

  def __init__(self, directory: str, *, step: int):
    self._path = os.path.join(directory, SWAPS_FILE)
    if processes.is_first():
      os.makedirs(directory, exist_ok=True)
      metric_writers.drop_rows_after(self._path, step)

  def write(self, step: int, loaded: LoadedGeneration) -> None:
    """Records that batches from `step` on use a generation; the first process writes for all."""
    if not processes.is_first():
      return
    record = {
      "step": step,
      "seconds": time.time(),
      "generation": loaded.generation,
      "training_step": loaded.training_step,
      "created": loaded.created,
    }
    with open(self._path, "a", encoding="utf-8") as file:
      file.write(json.dumps(record) + "\n")


METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
_Event: Callable[..., Any] = event_pb2.Event


class MetricWriter(Protocol):
  """Writes metrics and texts; what a writer does not define does nothing."""

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    pass

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    pass

  def flush(self) -> None:
    pass

  def close(self) -> None:
    pass


class JsonLinesWriter:
  """Appends one JSON object per write: scalars to `metrics.jsonl`, texts to `samples.jsonl`.

  Each has `step`, `seconds` (unix time) and its values.
  """

  def __init__(self, directory: str | os.PathLike, *, step: int):
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, METRICS_FILE)
    self._texts = os.path.join(directory, SAMPLES_FILE)
    for written in (path, self._texts):
      drop_rows_after(written, step)
    self._file = open(path, "a", encoding="utf-8")

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    values: dict[str, Any] = {name: _plain(value) for name, value in scalars.items()}
    self._file.write(json.dumps({"step": step, "seconds": time.time(), **values}) + "\n")
    self._file.flush()

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    row = {"step": step, "seconds": time.time(), **texts}
    with open(self._texts, "a", encoding="utf-8") as file:
      file.write(json.dumps(row, ensure_ascii=False) + "\n")

  def flush(self) -> None:
    self._file.flush()

  def close(self) -> None:
    self._file.close()


class TensorBoardWriter:
  """Appends scalars and texts to a file of events. TensorFlow would take seconds to import."""

  def __init__(self, directory: str | os.PathLike):
    os.makedirs(directory, exist_ok=True)
    name = f"events.out.tfevents.{time.time_ns()}.{platform.node()}.{os.getpid()}"
    self._file = open(os.path.join(directory, name), "wb")
    self._records = RecordWriter(self._file)
    self._write(file_version="brain.Event:2")

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    for name, value in scalars.items():
      self._write(step=step, summary=scalar_summaries.scalar_pb(name, float(np.asarray(value))))
    self.flush()

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
      self._write(step=step, summary=text_summaries.text_pb(name, text))

  def flush(self) -> None:
    self._file.flush()

  def close(self) -> None:
    self._file.close()

  def _write(self, **content) -> None:
    self._records.write(_Event(wall_time=time.time(), **content).SerializeToString())


class AlarmWriter(MetricWriter):
  """Logs each alarm about the metrics once, and reports healthy rows and the alarm of the end."""

  def __init__(
    self,
    *,
    min_entropy: float = alarms.MIN_ENTROPY,
    on_end: Callable[[alarms.Alarm], None] = lambda alarm: None,
    on_healthy: Callable[[int], None] = lambda step: None,
  ):
    self._min_entropy, self._on_end, self._on_healthy = min_entropy, on_end, on_healthy
    self._rows: list[dict] = []
    self._logged: set[tuple[str, int]] = set()

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    row = {"step": step, **{name: _plain(value) for name, value in scalars.items()}}
    self._rows.append(row)
    found = alarms.find(self._rows, min_entropy=self._min_entropy)
    for alarm in found:
      if (alarm.name, alarm.first_step) not in self._logged:
        self._logged.add((alarm.name, alarm.first_step))
        logging.warning("ALARM: %s", alarm)
    if (alarm := alarms.ending(found, step=step)) is not None:
      self._on_end(alarm)
    if alarms.is_healthy(self._rows, min_entropy=self._min_entropy):
      self._on_healthy(step)


class _Several:
  """Forwards everything to several writers."""

  def __init__(self, writers: Sequence[MetricWriter]):
    self._writers = writers

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    for writer in self._writers:
      writer.write_scalars(step, scalars)

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    for writer in self._writers:
      writer.write_texts(step, texts)

  def flush(self) -> None:
    for writer in self._writers:
      writer.flush()

  def close(self) -> None:
    for writer in self._writers:
      writer.close()


def drop_rows_after(path: str | os.PathLike, step: int) -> None:
  """Removes the rows after `step`, which a resumed run will write again.

  Removes a truncated last line as well. Does nothing if the file is missing.
  """
  if not os.path.exists(path):
    return
  with open(path, "rb") as file:
    lines = file.readlines()
  kept = [line for line in lines if line.endswith(b"\n") and json.loads(line)["step"] <= step]
  if kept != lines:
    atomic_files.write_bytes(path, b"".join(kept))


def make_writer(
  workdir: str | os.PathLike,
  *,
  step: int,
  first_process: bool,
  min_entropy: float = alarms.MIN_ENTROPY,
  on_end: Callable[[alarms.Alarm], None] = lambda alarm: None,
  on_healthy: Callable[[int], None] = lambda step: None,
) -> MetricWriter:
  """Returns the writer of a run; processes other than the first write nothing."""
  if not first_process:
    return _Several([])
  files = [TensorBoardWriter(workdir), JsonLinesWriter(workdir, step=step)]
  alarm_writer = AlarmWriter(min_entropy=min_entropy, on_end=on_end, on_healthy=on_healthy)
  return _Several([*files, alarm_writer])


def _plain(value) -> float | None:
  number = float(np.asarray(value))
  return number if np.isfinite(number) else None
