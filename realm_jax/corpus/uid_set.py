"""A set of uids in bounded memory, however many there are."""

import os
from collections.abc import Sequence

import numpy as np


class UidSet:
  """Stores 63-bit uids: the newest in a set, older ones sorted in memory, the rest on disk.

  The files are memory-mapped, so the system can drop them from memory when it is scarce. Without a
  directory all stay in memory, in eight bytes each.
  """

  def __init__(
    self,
    directory: str | os.PathLike | None = None,
    *,
    newest: int = 50_000,
    sorted_in_memory: int = 1_000_000,
  ):
    self._directory = directory
    self._max_newest = newest
    self._max_sorted = sorted_in_memory
    self._newest: set[int] = set()
    self._sorted = np.zeros(0, np.int64)
    self._on_disk: list[np.ndarray] = []

  def add(self, uids: Sequence[int]) -> list[bool]:
    """Adds uids; returns whether each was new."""
    wanted = np.asarray(uids, np.int64)
    seen = np.zeros(len(wanted), bool)
    for run in (self._sorted, *self._on_disk):
      if len(run):
        places = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
        seen |= run[places] == wanted
    new = []
    for uid, is_old in zip(uids, seen.tolist(), strict=True):
      is_new = not is_old and uid not in self._newest
      if is_new:
        self._newest.add(uid)
      new.append(is_new)
    if len(self._newest) >= self._max_newest:
      self._settle()
    return new

  def _settle(self) -> None:
    newest = np.fromiter(self._newest, np.int64, len(self._newest))
    self._newest = set()
    self._sorted = np.sort(np.concatenate([self._sorted, np.sort(newest)]), kind="stable")
    if self._directory is not None and len(self._sorted) >= self._max_sorted:
      path = os.path.join(self._directory, f"uids-{len(self._on_disk)}.npy")
      np.save(path, self._sorted)
      self._on_disk.append(np.load(path, mmap_mode="r"))
      self._sorted = np.zeros(0, np.int64)
