"""Named arrays as files of raw bytes, and the records that they are compared with on reading."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Mapping

import numpy as np

from realm_jax.foundations import object_store

_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


@dataclasses.dataclass(frozen=True)
class ArrayRecord:
  """Shape and dtype of an array, and the SHA-256 of its bytes."""

  shape: tuple[int, ...]
  dtype: str
  sha256: str


def describe(arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
  """Returns the record of each array.

  Raises:
    ValueError: If a name cannot be that of a file.
  """
  for name in arrays:
    if not _NAME.fullmatch(name):
      raise ValueError(f"an array named {name!r} cannot be stored; use [A-Za-z0-9_.]")
  return {name: _record(array) for name, array in arrays.items()}


def write(directory: object_store.Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays to a new directory."""
  directory.mkdir()
  for name, array in arrays.items():
    _file_of(directory, name).write_bytes(_content(array).tobytes())


def read(directory: object_store.Path, records: Mapping[str, ArrayRecord]) -> dict[str, np.ndarray]:
  """Reads arrays at the same time.

  Raises:
    FileNotFoundError: If one is missing.
    ValueError: If one is not what its record says.
  """
  with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(records))) as pool:
    arrays = pool.map(functools.partial(_read, directory), records, records.values())
    return dict(zip(records, arrays, strict=True))


def _read(directory: object_store.Path, name: str, record: ArrayRecord) -> np.ndarray:
  """Reads an array; allocates no memory unless the file has the recorded size."""
  if not _NAME.fullmatch(name):
    raise ValueError(f"{name!r} is not the name of an array")
  file = _file_of(directory, name)
  dtype = np.dtype(record.dtype)
  size, expected = file.stat().length, math.prod(record.shape) * dtype.itemsize
  if size != expected:
    raise ValueError(f"{name} has {size} bytes, the manifest says {expected}")
  content = np.empty(size, np.uint8)
  object_store.read_into(content.data, file)
  array = content.view(dtype).reshape(record.shape)
  if _record(array) != record:
    raise ValueError(f"{name} differs from the manifest")
  return array


def _file_of(directory: object_store.Path, name: str) -> object_store.Path:
  return directory / f"{name}.bin"


def _record(array: np.ndarray) -> ArrayRecord:
  digest = hashlib.sha256(_content(array)).hexdigest()
  return ArrayRecord(array.shape, array.dtype.name, digest)


def _content(array: np.ndarray) -> memoryview:
  # uint8, because the buffer protocol lacks bfloat16.
  return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
