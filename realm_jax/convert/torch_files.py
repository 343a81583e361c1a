"""Reads the tensors of a file that `torch.save` wrote, without torch and without running anything.

Such a file is a zip archive: a pickle of dicts whose tensors refer to storages, and one member for
each storage. The unpickler below knows tensors, storages and dicts; any other name ends the reading
before it is looked up, so that nothing in the file is ever imported or called.
"""

import math
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np

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


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the tensors of a saved state dict by name.

  Raises:
    ValueError: if the file is no zip archive of torch, is damaged, or holds anything but tensors
      by name.
  """
  try:
    with zipfile.ZipFile(path) as archive:
      (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
      with archive.open(pickled) as file:
        content = _Unpickler(file, archive, pickled.removesuffix("data.pkl")).load()
  except (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
  ) as error:
    raise ValueError(
      f"{os.fspath(path)} is no file of weights that can be read safely: {error}; save the model "
      "anew as safetensors"
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
    raise ValueError(f"{os.fspath(path)} holds no tensors by name")
  return tensors


class _Sealed:
  """Holds what the pickle may pass around but neither look into nor change."""

  __slots__ = ("value",)

  def __init__(self, value):
    object.__setattr__(self, "value", value)

  def __setattr__(self, name, value):
    raise pickle.UnpicklingError(f"it sets {name!r}")


class _StorageType(_Sealed):
  """A dtype."""


class _Storage(_Sealed):
  """A flat array."""


class _Tensor(_Sealed):
  """An array."""


class _Function(_Sealed):
  """A function of this module in the place of one of torch's."""

  def __call__(self, *args):
    return self.value(*args)


class _Dict(dict):
  """An ordered dict; what else is set on it (the version numbers of modules) is dropped."""

  __slots__ = ()

  def __setstate__(self, state):
    del state


class _Unpickler(pickle.Unpickler):
  def __init__(self, file, archive: zipfile.ZipFile, root: str):
    super().__init__(file)
    self._archive, self._root = archive, root

  def find_class(self, module: str, name: str):
    if (module, name) == ("collections", "OrderedDict"):
      return _Dict
    if module == "torch" and name in _DTYPES:
      return _StorageType(_DTYPES[name])
    if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
      return _Function(_tensor)
    if (module, name) == ("torch._utils", "_rebuild_parameter"):
      return _Function(lambda tensor, *_: tensor)
    raise pickle.UnpicklingError(f"it asks for {module}.{name}")

  def persistent_load(self, pid):
    kind, storage_type, key, _, size = pid
    if kind != "storage" or not isinstance(storage_type, _StorageType):
      raise pickle.UnpicklingError(f"it asks for a {kind!r}")
    values = np.frombuffer(self._archive.read(f"{self._root}data/{key}"), storage_type.value)
    if len(values) != size:
      raise ValueError(f"storage {key} has {len(values)} values instead of {size}")
    return _Storage(values)


def _tensor(storage, offset, shape, strides, *_) -> _Tensor:
  if not isinstance(storage, _Storage) or len(shape) != len(strides):
    raise ValueError("a tensor without storage or strides")
  if min(offset, *shape, *strides, 0) < 0:
    raise ValueError("a tensor of negative size")
  values = storage.value
  if 0 in shape:
    return _Tensor(np.zeros(shape, values.dtype))
  last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
  # Expanded tensors repeat values: more of them than the storage has is no tensor that was saved.
  if last >= len(values) or math.prod(shape) > len(values):
    raise ValueError(f"a tensor {shape} that ends outside of its storage")
  steps = [stride * values.itemsize for stride in strides]
  return _Tensor(np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False))
