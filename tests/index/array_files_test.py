"""Arrays are read in ranges, all at the same time."""

import threading

import numpy as np
import pytest

from realm_jax.foundations import object_store
from realm_jax.index import array_files

ARRAYS = {
  "embeddings": np.arange(20, dtype=np.float32).reshape(5, 4),
  "codes": np.arange(3, dtype=np.uint8),
  "nothing": np.zeros((0, 4), np.float32),
  "scalar": np.array(7, np.int64),
}


@pytest.mark.parametrize("size", [1, 7, 80, 1 << 20])
def test_arrays_come_back_from_ranges_of_any_size(tmp_path, monkeypatch, size):
  monkeypatch.setattr(object_store, "_RANGE", size)
  directory = object_store.Path(tmp_path / "shard")
  array_files.write(directory, ARRAYS)
  found = array_files.read(directory, array_files.describe(ARRAYS))
  assert found.keys() == ARRAYS.keys()
  for name, array in ARRAYS.items():
    assert found[name].dtype == array.dtype
    np.testing.assert_array_equal(found[name], array)


def test_ranges_of_every_array_are_read_at_the_same_time(tmp_path, monkeypatch):
  monkeypatch.setattr(object_store, "_RANGE", 40)
  directory = object_store.Path(tmp_path / "shard")
  array_files.write(directory, ARRAYS)
  together, in_ranges = threading.Barrier(4, timeout=30), object_store._for_each_range

  def waiting(source, size, use):
    def use_together(file, first, length):
      together.wait()  # broken if one range has to wait for another
      use(file, first, length)

    in_ranges(source, size, use_together)

  monkeypatch.setattr(object_store, "_for_each_range", waiting)
  array_files.read(directory, array_files.describe(ARRAYS))  # two ranges, and one of each other
