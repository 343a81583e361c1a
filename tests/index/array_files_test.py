"""Arrays are read in ranges, all at the same time."""

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
