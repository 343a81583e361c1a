"""Finished embeddings, kept until their generation is published.

A killed builder continues from them. The embeddings of consecutive passages are one file; its
record is written after it and has its SHA-256 and what the embeddings depend on.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping

import numpy as np
from absl import logging

from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import DirectoryKind

_KIND = DirectoryKind(
  name="a directory of unfinished embeddings",
  files=("[0-9]*/*_*.bin", "[0-9]*/*_*.json", "[0-9]*/.*"),
)


def check(index: str) -> None:
  """Checks that nothing else stands where the unfinished embeddings of an index are kept.

  Raises:
    ValueError: If something does; it would be removed with them.
  """
  _KIND.check(_directory(index))


def borders(first: int, stop: int, *, every: int) -> list[int]:
  """Returns where to divide passages to keep them: at multiples, for any number of processes."""
  return [first, *range((first // every + 1) * every, stop, every), stop]


def _directory(index: str) -> object_store.Path:
  return object_store.absolute(f"{index.rstrip('/')}.unfinished")


def steps(index: str) -> list[int]:
  """Returns the steps of the checkpoints that unfinished generations of an index are made from."""
  directory = _directory(index)
  return sorted(int(path.name) for path in directory.iterdir()) if directory.exists() else []


def remove(index: str) -> None:
  """Deletes the unfinished embeddings of an index."""
  directory = _directory(index)
  if directory.exists():
    directory.rmtree()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnfinishedEmbeddings:
  """The embeddings of a generation that is being made.

  Attributes:
    step: Step of the checkpoint that embeds.
    identity: What the embeddings depend on besides their rows, such as the encoder's digest.
  """

  index: str
  step: int
  identity: Mapping[str, str | int]

  def load(self, rows: slice, into_NxE: np.ndarray) -> bool:
    """Reads the embeddings of consecutive passages; returns whether they are there and intact."""
    path = self._path(rows)
    try:
      record = json.loads(object_store.Path(f"{path}.json").read_text())
      content = object_store.Path(f"{path}.bin").read_bytes()
    except (FileNotFoundError, ValueError):
      return False
    found = hashlib.sha256(content).hexdigest()
    if record != {**self.identity, "sha256": found} or len(content) != into_NxE.nbytes:
      logging.warning("%s.bin is damaged or of another encoder; embedding these passages", path)
      return False
    into_NxE[:] = np.frombuffer(content, into_NxE.dtype).reshape(into_NxE.shape)
    return True

  def save(self, rows: slice, embeddings_NxE: np.ndarray) -> None:
    """Writes the embeddings of consecutive passages; a failure is only reported."""
    path = self._path(rows)
    content = np.ascontiguousarray(embeddings_NxE).view(np.uint8).tobytes()
    record = {**self.identity, "sha256": hashlib.sha256(content).hexdigest()}
    try:
      atomic_files.write_bytes(f"{path}.bin", content)
      atomic_files.write_text(f"{path}.json", json.dumps(record))
    except Exception as error:  # the generation does not need them
      logging.warning("could not keep finished embeddings in %s.bin: %s", path, error)

  def _path(self, rows: slice) -> str:
    name = f"{rows.start:012d}_{rows.stop:012d}"
    return os.fspath(_directory(self.index) / str(self.step) / name)
