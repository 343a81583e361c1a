"""Where metrics go: TensorBoard through CLU, and `metrics.jsonl`."""

import json
import os
import time
from collections.abc import Mapping

import numpy as np
from clu import metric_writers

METRICS_FILE = "metrics.jsonl"


class JsonLinesWriter(metric_writers.MetricWriter):
  """Appends one JSON object a write to `metrics.jsonl`: `step`, `seconds` (unix time), scalars."""

  def __init__(self, directory: str | os.PathLike):
    os.makedirs(directory, exist_ok=True)
    self._file = open(os.path.join(directory, METRICS_FILE), "a", encoding="utf-8")

  def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
    values = {name: _plain(value) for name, value in scalars.items()}
    self._file.write(json.dumps({"step": step, "seconds": time.time(), **values}) + "\n")
    self._file.flush()

  def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
    """Texts go to TensorBoard alone."""

  def write_hparams(self, hparams: Mapping) -> None:
    """The configuration stands in the gin files of the run."""

  def write_images(self, step, images) -> None:
    """Images go to TensorBoard alone."""

  def write_videos(self, step, videos) -> None:
    """Videos go to TensorBoard alone."""

  def write_audios(self, step, audios, *, sample_rate) -> None:
    """Audios go to TensorBoard alone."""

  def write_histograms(self, step, arrays, num_buckets=None) -> None:
    """Histograms go to TensorBoard alone."""

  def write_pointcloud(self, step, point_clouds, *, point_colors=None, configs=None) -> None:
    """Point clouds go to TensorBoard alone."""

  def write_summaries(self, step, values, metadata=None) -> None:
    """Other summaries go to TensorBoard alone."""

  def flush(self) -> None:
    self._file.flush()

  def close(self) -> None:
    self._file.close()


def make_writer(workdir: str | os.PathLike, *, first_process: bool) -> metric_writers.MetricWriter:
  """Returns the writers of a run; processes other than the first write nothing."""
  if not first_process:
    return metric_writers.MultiWriter([])
  return metric_writers.MultiWriter(
    [
      metric_writers.AsyncMultiWriter([metric_writers.SummaryWriter(os.fspath(workdir))]),
      JsonLinesWriter(workdir),
    ]
  )


def _plain(value) -> float | None:
  number = float(np.asarray(value))
  return number if np.isfinite(number) else None
