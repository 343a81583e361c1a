"""Many strings in two arrays."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Strings(Sequence[str]):
  """UTF-8 strings, one after the other.

  Attributes:
    content: uint8, all strings joined.
    ends: int64, where each string ends, after a 0.
  """

  content: np.ndarray
  ends: np.ndarray

  @classmethod
  def of(cls, strings: Iterable[str]) -> "Strings":
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

  @classmethod
  def join(cls, parts: Sequence["Strings"]) -> "Strings":
    """Returns the strings of all parts."""
    lengths = np.concatenate([np.diff(part.ends) for part in parts])
    content = np.concatenate([part.content for part in parts])
    return cls(content, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

  def __len__(self) -> int:
    return len(self.ends) - 1

  @functools.cached_property
  def _views(self) -> tuple[memoryview, memoryview]:
    return self.content.data, self.ends.data  # read several times as fast

  def __getitem__(self, row):
    content, ends = self._views
    return str(content[ends[row] : ends[row + 1]], "utf-8")

  def kept(self, mask: np.ndarray) -> "Strings":
    """Returns the strings where the mask is true."""
    if mask.all():
      return self
    # Runs of neighbours are copied together.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    runs = [self.content[self.ends[a] : self.ends[b]] for a, b in edges.reshape(-1, 2)]
    lengths = np.diff(self.ends)[mask]
    content = np.concatenate(runs) if runs else self.content[:0]
    return Strings(content, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
