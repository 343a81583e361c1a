"""Reads the tensors of a file from `torch.save`, without torch and without running any code.

Such a file is a zip archive with a pickle of dicts, whose tensors refer to storages, and one member
per storage. Only tensors, storages and dicts are read; see `sealed_pickles`.
"""

import math
import os
import zipfile

import ml_dtypes
import numpy as np

from realm_jax.convert import sealed_pickles
from realm_jax.convert.sealed_pickles import Function, Sealed

_DTYPES = {
  "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
  "BoolStorage": np.dtype(np.bool_),
  "ByteStorage": np.dtype(np.uint8),
  "CharStorage": np.dtype(np.int8),
  "DoubleStorage": np.dtype("<f8"),
  "FloatStorage": np.dtype("<f4"),
  "HalfStorage": np.dtype("<f2"),
  "IntStorage": np.dtype("<i4"),
  "LongStorage": np.dtype("<i8"),
  "ShortStorage": np.dtype("<i2"),
}
_PICKLE = "data.pkl"


class _StorageType(Sealed):
  """A dtype."""


class _Storage(Sealed):
  """A flat array."""


class _Tensor(Sealed):
  """An array."""


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the tensors of a saved state dict by name.

  Raises:
    ValueError: If the file is not a zip archive of torch, is damaged, contains anything but
      tensors, or has no named tensors.
  """
  try:
    with zipfile.ZipFile(path) as archive:
      content = _content(archive)
  except (*sealed_pickles.ERRORS, zipfile.BadZipFile, NotImplementedError) as error:
    raise ValueError(
      f"{os.fspath(path)} is not a file of weights that is safe to read: {error}; save the model "
      "again as safetensors"
    ) from error
  if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
    content = content["state_dict"]
  items = content.items() if isinstance(content, dict) else ()
  tensors = {
    name: value.value
    for name, value in items
    if isinstance(name, str) and isinstance(value, _Tensor)
  }
  if not tensors:
    raise ValueError(f"{os.fspath(path)} has no named tensors")
  return tensors


def _content(archive: zipfile.ZipFile):
  (pickled,) = (name for name in archive.namelist() if name.endswith(f"/{_PICKLE}"))
  root = pickled.removesuffix(_PICKLE)
  known: dict[tuple[str, str], object] = {
    ("torch", name): _StorageType(dtype) for name, dtype in _DTYPES.items()
  }
  known["collections", "OrderedDict"] = sealed_pickles.Dict
  known["torch._utils", "_rebuild_tensor_v2"] = Function(_tensor)
  known["torch._utils", "_rebuild_parameter"] = Function(lambda tensor, *_: tensor)

  def load(pid) -> _Storage:
    kind, storage_type, key, _, size = pid
    if kind != "storage" or not isinstance(storage_type, _StorageType):
      raise ValueError(f"it refers to a {kind!r}")
    member = _stored(archive, f"{root}data/{key}")
    if member.file_size != size * storage_type.value.itemsize:
      raise ValueError(f"storage {key} has {member.file_size} bytes instead of {size} values")
    return _Storage(np.frombuffer(archive.read(member), storage_type.value))

  with archive.open(_stored(archive, pickled)) as file:
    return sealed_pickles.Unpickler(file, known=known, load=load).load()


def _stored(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
  """Returns an uncompressed member, so that its size in memory is bounded by that of the file."""
  member = archive.getinfo(name)
  if member.compress_type != zipfile.ZIP_STORED:
    raise ValueError(f"{name} is compressed, unlike anything that torch writes")
  return member


def _tensor(storage, offset, shape, strides, *_) -> _Tensor:
  if not isinstance(storage, _Storage) or len(shape) != len(strides):
    raise ValueError("a tensor without storage or strides")
  if min(offset, *shape, *strides, 0) < 0:
    raise ValueError("a tensor of negative size")
  values = storage.value
  if 0 in shape:
    return _Tensor(np.zeros(shape, values.dtype))
  last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
  # Expanded tensors repeat values; no saved tensor has more values than its storage.
  if last >= len(values) or math.prod(shape) > len(values):
    raise ValueError(f"a tensor {shape} that exceeds its storage")
  steps = [stride * values.itemsize for stride in strides]
  return _Tensor(np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False))
