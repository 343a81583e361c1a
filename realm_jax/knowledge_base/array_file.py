"""Named arrays in one file, which is memory-mapped: a JSON header, then the bytes of each array."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from realm_jax.foundations import atomic_files

_ALIGNMENT = 64


def write(path: str, arrays: Mapping[str, np.ndarray], *, metadata: Any) -> None:
  """Writes a file; its content is on the disk when this returns."""
  entries, offset = {}, 0
  for name, array in arrays.items():
    entries[name] = [array.dtype.str, array.shape, offset]
    offset += array.nbytes + -array.nbytes % _ALIGNMENT
  header = json.dumps({"arrays": entries, "bytes": offset, "metadata": metadata}).encode()
  header += b" " * (-(len(header) + 8) % _ALIGNMENT)
  with open(path, "wb") as file:
    file.write(len(header).to_bytes(8, "little") + header)
    for array in arrays.values():
      file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
      file.write(bytes(-array.nbytes % _ALIGNMENT))
    atomic_files.close(file)
  atomic_files.sync_directory(os.path.dirname(os.path.abspath(path)))


def open_mapped(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], Any]:
  """Maps the arrays of a file; returns them by name, and the metadata."""
  content = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
  start = 8 + int.from_bytes(content[:8].tobytes(), "little")
  try:
    header = json.loads(content[8:start].tobytes())
  except ValueError as error:
    raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
  if len(content) != start + header["bytes"]:
    raise ValueError(f"{os.fspath(path)} has {len(content)} bytes, not {start + header['bytes']}")
  arrays = {}
  for name, (dtype, shape, offset) in header["arrays"].items():
    size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    first = start + offset
    arrays[name] = content[first : first + size].view(dtype).reshape(shape)
  return arrays, header["metadata"]
