import ml_dtypes
import numpy as np
import pytest

from realm_jax.checkpoints.formats.huggingface_files import (
  read_weights,
  write_weights,
)

ARRAYS = {
  "b": np.arange(6, dtype=np.float32).reshape(2, 3),
  "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
  "a": np.array([True]),
  "half": np.array([1.5, -2], ml_dtypes.bfloat16),
  "none": np.zeros((0, 4), np.int64),
  "scalar": np.array(3.0),
}


def test_what_is_written_is_read(tmp_path):
  write_weights(tmp_path, ARRAYS)
  read = read_weights(tmp_path)
  assert read.keys() == ARRAYS.keys()
  for name, array in ARRAYS.items():
    assert read[name].dtype == array.dtype and read[name].shape == array.shape
    np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize("keep", [4, 20, -1])
def test_a_file_cut_short_is_refused(keep, tmp_path):
  write_weights(tmp_path, ARRAYS)
  path = tmp_path / "model.safetensors"
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(ValueError, match="model.safetensors is not a complete safetensors file"):
    read_weights(tmp_path)


def test_shards_are_read_together(tmp_path):
  for name in ("a", "b"):
    write_weights(tmp_path, {name: ARRAYS[name]})
    (tmp_path / "model.safetensors").rename(tmp_path / name)
  index = tmp_path / "model.safetensors.index.json"
  index.write_text('{"weight_map": {"a": "a", "b": "b"}}')
  assert read_weights(tmp_path).keys() == {"a", "b"}
  index.write_text('{"weight_map": {"a": "../a"}}')
  with pytest.raises(ValueError, match="names '../a', which is not a file next to it"):
    read_weights(tmp_path)


def test_a_pickle_of_weights_is_not_read(tmp_path):
  (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n.")
  with pytest.raises(ValueError, match="pytorch_model.bin is a pickle, which is not read"):
    read_weights(tmp_path)
