"""Named arrays in one file, which is memory-mapped: a JSON header, then the bytes of each array."""

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from realm_jax.foundations import array_shapes, atomic_files, json_fields, plain_files, text_files

_ALIGNMENT = 64
_DTYPE = re.compile(r"[<|][iufb][1248]")


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


def open_mapped(
  path: str | os.PathLike, *, shapes: Mapping[str, str], metadata: Any = None
) -> tuple[dict[str, np.ndarray], Any]:
  """Maps the arrays of a file; returns them by name, and the metadata.

  Args:
    shapes: Of arrays that it has; see `array_shapes.check`.
    metadata: The type of the metadata; see `json_fields`.

  Raises:
    ValueError: If it is no such file.
  """
  with plain_files.open_plain(path) as file:
    content = np.memmap(file, np.uint8, mode="r").view(np.ndarray)
  try:
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = text_files.parse_json(content[8:start].tobytes())
    if len(content) != start + header["bytes"]:
      raise ValueError(f"it has {len(content)} bytes, not {start + header['bytes']}")
    arrays = {}
    for name, (dtype, shape, offset) in header["arrays"].items():
      if not (_DTYPE.fullmatch(dtype) and all(type(n) is int and n >= 0 for n in [offset, *shape])):
        raise ValueError(f"{name!r:.60} is no array")
      size = np.dtype(dtype).itemsize * math.prod(shape)
      first = start + offset
      arrays[name] = content[first : first + size].view(dtype).reshape(shape)
    array_shapes.check(arrays, shapes)
    return arrays, json_fields.restored(metadata, header["metadata"])
  except json_fields.WRONG as error:
    raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
