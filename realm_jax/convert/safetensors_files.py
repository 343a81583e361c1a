"""The safetensors format: a JSON header with dtypes, shapes and offsets, then the arrays' bytes."""

import json
import os
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from realm_jax import atomic_files

_DTYPES = {
  "BOOL": np.dtype(np.bool_),
  "U8": np.dtype(np.uint8),
  "I8": np.dtype(np.int8),
  "I16": np.dtype("<i2"),
  "I32": np.dtype("<i4"),
  "I64": np.dtype("<i8"),
  "F16": np.dtype("<f2"),
  "BF16": np.dtype(ml_dtypes.bfloat16),
  "F32": np.dtype("<f4"),
  "F64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ALIGNMENT = 8


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by name, memory-mapped and read-only.

  Raises:
    ValueError: if the file is damaged, or an array has a dtype that is not known here.
  """
  content = np.memmap(path, np.uint8, "r")
  try:
    header_size = int(content[:8].view("<u8")[0])
    header = json.loads(content[8 : 8 + header_size].tobytes())
    header.pop("__metadata__", None)
    return {name: _array(content[8 + header_size :], record) for name, record in header.items()}
  except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
    raise ValueError(f"{os.fspath(path)} is no whole safetensors file: {error}") from error


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays as `transformers` reads them."""
  header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
  parts, offset = [], 0
  for name, array in sorted(arrays.items()):
    data = np.ascontiguousarray(array).tobytes()
    header[name] = {
      "dtype": _NAMES[array.dtype],
      "shape": list(array.shape),
      "data_offsets": [offset, offset + len(data)],
    }
    parts.append(data)
    offset += len(data)
  text = json.dumps(header).encode()
  text += b" " * (-len(text) % _ALIGNMENT)
  atomic_files.write_bytes(path, b"".join([len(text).to_bytes(8, "little"), text, *parts]))


def _array(data: np.ndarray, record: dict) -> np.ndarray:
  if record["dtype"] not in _DTYPES:
    raise ValueError(f"dtype {record['dtype']} is none of {', '.join(_DTYPES)}")
  start, stop = record["data_offsets"]
  if not 0 <= start <= stop <= len(data):
    raise ValueError(f"bytes {start} to {stop} of {len(data)}")
  return data[start:stop].view(_DTYPES[record["dtype"]]).reshape(record["shape"])
