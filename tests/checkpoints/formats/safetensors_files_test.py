import ml_dtypes
import numpy as np
import pytest

from realm_jax.checkpoints.formats import safetensors_files

ARRAYS = {
  "b": np.arange(6, dtype=np.float32).reshape(2, 3),
  "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
  "a": np.array([True]),
  "half": np.array([1.5, -2], ml_dtypes.bfloat16),
  "none": np.zeros((0, 4), np.int64),
  "scalar": np.array(3.0),
}


def test_what_is_written_is_read(tmp_path):
  path = tmp_path / "model.safetensors"
  safetensors_files.write(path, ARRAYS)
  read = safetensors_files.read(path)
  assert read.keys() == ARRAYS.keys()
  for name, array in ARRAYS.items():
    assert read[name].dtype == array.dtype and read[name].shape == array.shape
    np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize("keep", [4, 20, -1])
def test_a_file_cut_short_is_refused(keep, tmp_path):
  path = tmp_path / "model.safetensors"
  safetensors_files.write(path, ARRAYS)
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(ValueError, match="model.safetensors is not a complete safetensors file"):
    safetensors_files.read(path)


def test_shards_are_read_together(tmp_path):
  safetensors_files.write(tmp_path / "one", {"a": ARRAYS["a"]})
  safetensors_files.write(tmp_path / "two", {"b": ARRAYS["b"]})
  index = tmp_path / "model.safetensors.index.json"
  index.write_text('{"weight_map": {"a": "one", "b": "two"}}')
  assert safetensors_files.read_directory(tmp_path).keys() == {"a", "b"}
  index.write_text('{"weight_map": {"a": "../one"}}')
  with pytest.raises(ValueError, match="names '../one', which is not a file next to it"):
    safetensors_files.read_directory(tmp_path)


def test_a_pickle_of_weights_is_not_read(tmp_path):
  (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n.")
  with pytest.raises(ValueError, match="pytorch_model.bin is a pickle, which is not read"):
    safetensors_files.read_directory(tmp_path)
