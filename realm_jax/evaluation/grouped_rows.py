"""Groups of integer rows, such as the occurrences of each answer, possibly larger than memory."""

import tempfile

import numpy as np

_ROWS_AT_ONCE = 1 << 20


class GroupedRows:
  """Groups of rows, concatenated in one array.

  Args:
    values: int32 `[n]` or `[n, width]`.
    lengths: Number of rows of each group.
  """

  def __init__(self, values: np.ndarray, lengths: np.ndarray):
    if np.sum(lengths) != len(values):
      raise ValueError(f"{len(values)} rows in groups of {np.sum(lengths)} in all")
    self.values = np.asarray(values)  # a view without the slow indexing of a memory map
    self.lengths = np.asarray(lengths, np.int32)
    self._ends = np.cumsum(self.lengths, dtype=np.int64)

  def __getitem__(self, group: int) -> np.ndarray:
    """Returns the rows of a group."""
    end = self._ends[group]
    return self.values[end - self.lengths[group] : end]

  def __len__(self) -> int:
    return len(self.lengths)


class RowCollector:
  """Collects rows by group in a temporary file, keeping none in memory.

  Args:
    num_groups: Number of groups, which are numbered from 0.
    width: Integers per row.
  """

  def __init__(self, num_groups: int, *, width: int):
    self._file = tempfile.TemporaryFile(prefix="realm_labels_")
    self._lengths = np.zeros(num_groups, np.int64)
    self._width = width

  def add(self, groups: np.ndarray, rows: np.ndarray) -> None:
    """Appends rows `[n, width]`, each to its group `[n]`."""
    np.add.at(self._lengths, groups, 1)
    self._file.write(np.column_stack([groups, rows]).astype(np.int32).tobytes())

  def grouped(self) -> GroupedRows:
    """Returns the rows by group, in order of arrival, memory-mapped from a temporary file."""
    total = int(self._lengths.sum())
    shape = (total, self._width)
    if not total:
      return GroupedRows(np.zeros(shape, np.int32), self._lengths)
    with self._file, tempfile.TemporaryFile(prefix="realm_labels_") as target:
      values = np.memmap(target, np.int32, "w+", shape=shape)
      ends = np.cumsum(self._lengths) - self._lengths  # by group, end of the rows placed so far
      self._file.seek(0)
      columns = 1 + self._width
      while len(found := np.fromfile(self._file, np.int32, _ROWS_AT_ONCE * columns)):
        records = found.reshape(-1, columns)
        records = records[np.argsort(records[:, 0], kind="stable")]
        groups, counts = np.unique(records[:, 0], return_counts=True)
        firsts = np.repeat(ends[groups] - (np.cumsum(counts) - counts), counts)
        values[firsts + np.arange(len(records))] = records[:, 1:]
        ends[groups] += counts
    return GroupedRows(values, self._lengths)
