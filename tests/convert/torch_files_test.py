import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

from realm_jax.convert import torch_files

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"


class Named:
  """Pickles as a call of a function by name, without importing the function."""

  def __init__(self, module, name, *arguments):
    self.function, self.arguments = type(name, (), {"__module__": module}), arguments

  def __reduce__(self):
    return self.function, self.arguments


class Reference(Named):
  """Pickles as a reference to a name."""


class _Pickler(pickle._Pickler):
  def save_global(self, obj, name=None):
    self.write(f"c{obj.__module__}\n{obj.__name__}\n".encode())

  def persistent_id(self, obj):
    return obj.pid if isinstance(obj, Stored) else None


class Stored:
  """A reference to a storage."""

  def __init__(self, kind, dtype, key, size):
    self.pid = (kind, type(dtype, (), {"__module__": "torch"}), key, "cpu", size)


def write(path, content, storages=()):
  with zipfile.ZipFile(path, "w") as archive:
    with archive.open("archive/data.pkl", "w") as file:
      _Pickler(file, protocol=2).dump(content)
    for key, data in dict(storages).items():
      archive.writestr(f"archive/data/{key}", data)
  return path


def tensor(*, size=6, shape=(2, 3), strides=(3, 1), offset=0, dtype="FloatStorage", kind="storage"):
  stored = Stored(kind, dtype, "0", size)
  return Named("torch._utils", "_rebuild_tensor_v2", stored, offset, shape, strides, False, None)


VALUES = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
  ("settings", "expected"),
  [
    ({}, VALUES.reshape(2, 3)),
    ({"shape": (3, 2), "strides": (1, 3)}, VALUES.reshape(2, 3).T),
    ({"shape": (2,), "strides": (1,), "offset": 4}, VALUES[4:]),
    ({"shape": (), "strides": ()}, VALUES[0]),
    ({"shape": (0, 3), "strides": (3, 1)}, VALUES[:0].reshape(0, 3)),
  ],
)
def test_tensors_are_views_of_storages(settings, expected, tmp_path):
  path = write(tmp_path / "x.bin", {"a": tensor(**settings)}, {"0": VALUES.tobytes()})
  array = torch_files.read(path)["a"]
  np.testing.assert_array_equal(array, expected)
  assert array.dtype == np.float32


def test_a_file_of_torch_itself():
  arrays = torch_files.read(TESTDATA / "realm" / "open_qa" / "pytorch_model.bin")
  assert arrays["block_emb"].shape == (7, 6)
  assert arrays["embedder.realm.embeddings.word_embeddings.weight"].dtype == np.float32
  assert np.isfinite(arrays["embedder.cls.dense.weight"]).all()


def test_the_weights_may_lie_under_state_dict(tmp_path):
  content = {"epoch": 3, "state_dict": {"a": tensor()}}
  path = write(tmp_path / "x.bin", content, {"0": VALUES.tobytes()})
  assert list(torch_files.read(path)) == ["a"]


def test_nothing_is_ever_called(tmp_path):
  witness = tmp_path / "witness"
  for module, name in (("os", "system"), ("posix", "system"), ("builtins", "eval")):
    argument = f"touch {witness}" if name == "system" else f"open({str(witness)!r}, 'w')"
    path = write(tmp_path / "x.bin", {"a": Named(module, name, argument)})
    with pytest.raises(ValueError, match=f"asks for {module}.{name}"):
      torch_files.read(path)
  assert not os.path.exists(witness)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ({"a": tensor(size=7)}, "storage 0 has 24 bytes instead of 7 values"),
    ({"a": tensor(size=10**15)}, "storage 0 has 24 bytes instead of"),
    ({"a": tensor(shape=(3, 3))}, "exceeds its storage"),
    ({"a": tensor(shape=(9,), strides=(0,))}, "exceeds its storage"),
    ({"a": tensor(offset=1)}, "exceeds its storage"),
    ({"a": tensor(strides=(4, 1))}, "exceeds its storage"),
    ({"a": tensor(offset=-1)}, "negative size"),
    ({"a": tensor(kind="module")}, "refers to a 'module'"),
    ({"a": Named("torch._utils", "_rebuild_tensor_v2", [1], 0, (1,), (1,))}, "without storage"),
    ({"a": 3}, "has no named tensors"),
    ([tensor()], "has no named tensors"),
  ],
)
def test_what_is_no_tensor_is_refused(content, message, tmp_path):
  path = write(tmp_path / "x.bin", content, {"0": VALUES.tobytes()})
  with pytest.raises(ValueError, match=message):
    torch_files.read(path)


def test_what_would_swell_is_refused(tmp_path):
  path = tmp_path / "x.bin"
  with zipfile.ZipFile(write(path, {"a": tensor()}), "a", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("archive/data/0", VALUES.tobytes())
  with pytest.raises(ValueError, match="archive/data/0 is compressed, unlike any"):
    torch_files.read(path)


def test_what_is_no_archive_is_refused(tmp_path):
  path = tmp_path / "x.bin"
  path.write_bytes(pickle.dumps({"a": 1}))
  with pytest.raises(
    ValueError, match="not a file of weights.*save the model again as safetensors"
  ):
    torch_files.read(path)
