"""The retrieval trace: the passages that each step of a run read, and the generation searched.

It has a file for the steps between two checkpoints, of each process, written atomically before the
second checkpoint. So a resumed run finds the trace up to the batch that its checkpoint had in
flight, and replaces what comes later. Nothing is appended to, so the trace may be in an object
store.
"""

import dataclasses
import functools
import io
import json
import os
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from realm_jax.devices import processes
from realm_jax.devices.datatypes import SearchResults
from realm_jax.foundations import atomic_files, object_store
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training import resumption

RETRIEVALS = "retrievals"
_NAME = re.compile(r"steps_(\d+)_to_(\d+)\.process_(\d+)_of_(\d+)\.npz")


@dataclasses.dataclass(frozen=True)
class TracedStep:
  """What one step read.

  Attributes:
    passages: Rows of the corpus and stale scores, `[B, K]`, the null passage first.
    training_step: Step of the parameters that embedded it.
  """

  passages: SearchResults
  generation: int
  training_step: int


@dataclasses.dataclass(frozen=True)
class _File:
  """The steps `first` to `last` of one process of `count`."""

  path: object_store.Path
  first: int
  last: int
  process: int
  count: int


def _files(directory: str) -> list[_File]:
  root = object_store.absolute(directory)
  found = [(path, _NAME.fullmatch(path.name)) for path in root.glob("*.npz")]
  files = [_File(path, *map(int, match.groups())) for path, match in found if match]
  return sorted(files, key=lambda file: (file.first, file.process))


class TraceWriter:
  """Writes the trace of a run.

  Args:
    directory: Directory of the trace, local or in an object store.
    settings: What determines queries and passages, by name.
    step: Steps taken so far; what a killed run wrote about later ones is removed.
  """

  def __init__(self, directory: str, *, settings: Mapping[str, Any], step: int):
    self._directory = directory
    self._settings = settings
    self._steps: dict[int, TracedStep] = {}
    if processes.is_first():
      for file in _files(directory):
        if file.last > step + 1:  # the batch of the next step was in flight
          file.path.unlink()

  def add(self, step: int, passages: SearchResults, loaded: LoadedGeneration) -> None:
    """Keeps what this process retrieved for a step, in memory until `flush`."""
    self._steps[step] = TracedStep(passages, loaded.generation, loaded.training_step)

  def flush(self) -> None:
    """Writes the steps added since the last call."""
    if not self._steps:
      return
    numbers = sorted(self._steps)
    steps = [self._steps[number] for number in numbers]
    content = io.BytesIO()
    np.savez(
      content,
      allow_pickle=False,
      settings=np.frombuffer(json.dumps(self._settings).encode(), np.uint8),
      passage_ids=np.stack([step.passages.ids_BxK for step in steps]),
      stale_scores=np.stack([step.passages.scores_BxK for step in steps]),
      generation=np.array([(step.generation, step.training_step) for step in steps]),
    )
    process = f"process_{jax.process_index()}_of_{jax.process_count()}"
    name = f"steps_{numbers[0]:08d}_to_{numbers[-1]:08d}.{process}.npz"
    atomic_files.write_bytes(os.path.join(self._directory, name), content.getvalue())
    self._steps.clear()


class Trace:
  """Reads the trace of a run, written by any number of processes.

  Args:
    directory: `WORKDIR/retrievals` of the run.
    settings: Settings of the run, by name; other values are refused.
  """

  def __init__(self, directory: str, *, settings: Mapping[str, Any]):
    self.directory = directory
    self._settings = settings
    self._parts: dict[tuple[int, int], list[_File]] = {}
    for file in _files(directory):
      self._parts.setdefault((file.first, file.last), []).append(file)
    self._part_of = {
      step: part
      for part, files in self._parts.items()
      if len(files) == files[0].count
      for step in range(part[0], part[1] + 1)
    }
    self._read = functools.lru_cache(maxsize=1)(self._read_part)

  def __getitem__(self, step: int) -> TracedStep:
    """Returns what a step read, in all processes.

    Raises:
      ValueError: If it is of a run with other settings, a file is damaged, or the step is missing.
    """
    if step not in self._part_of:
      known = self._part_of
      held = f"steps {min(known)} to {max(known)}" if known else "no steps"
      raise ValueError(
        f"{self.directory} has {held}, but not step {step}; give the WORKDIR of a run with "
        "--retrieval_trace=true, and a step that it has taken"
      )
    first, last = self._part_of[step]
    arrays = self._read(first, last)
    row = step - first
    passages = SearchResults(arrays["passage_ids"][row], arrays["stale_scores"][row])
    return TracedStep(passages, *arrays["generation"][row].tolist())

  def _read_part(self, first: int, last: int) -> dict[str, np.ndarray]:
    files = self._parts[first, last]
    parts = [self._arrays(file) for file in files]
    joined = {
      name: np.concatenate([part[name] for part in parts], axis=1)
      for name in ("passage_ids", "stale_scores")
    }
    return {**joined, "generation": parts[0]["generation"]}

  def _arrays(self, file: _File) -> dict[str, np.ndarray]:
    try:
      with np.load(io.BytesIO(file.path.read_bytes()), allow_pickle=False) as saved:
        arrays = {name: saved[name] for name in saved.files}  # each verified by its CRC
      settings = json.loads(arrays.pop("settings").tobytes())
      sizes = {name: len(arrays[name]) for name in ("passage_ids", "stale_scores", "generation")}
      if set(sizes.values()) != {file.last - file.first + 1}:
        raise ValueError(f"it has {sizes} steps")
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
      raise ValueError(
        f"{file.path} is damaged ({error}); show a step before {file.first}"
      ) from error
    named = {name: settings.get(name) for name in self._settings}
    if differing := "; ".join(resumption.differences(named, self._settings).values()):
      raise ValueError(
        f"{file.path} is the trace of a run with other batches ({differing}); give the settings "
        "and the corpus of that run"
      )
    return arrays
