"""Named arrays on disk: a folder with a file of raw bytes for each, and `folder.json`.

`folder.json` has the kind of the folder, its format, a description, the shape, dtype and SHA-256 of
each array, and at its end its own SHA-256. It is written last: a folder without it is unfinished.
Arrays are mapped into memory (`Folder`), or read from a bucket in ranges (`read_arrays`).

Where many folders would be small, each is one file: the same JSON, then the bytes of each array
(`write_file`, `open_file`).
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from realm_jax.foundations import (
  array_shapes,
  atomic_files,
  json_fields,
  object_store,
  plain_files,
  text_files,
)
from realm_jax.foundations.output_kinds import DirectoryKind, refusal

FOLDER_FILE = "folder.json"
_NAME = re.compile(r"\w+([./]\w+)*", re.ASCII)
_SIZES = {"bool": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}  # of items
_SIZES |= {f"{kind}{8 * size}": size for kind in ("int", "uint") for size in (1, 2, 4, 8)}
_ALIGNMENT, _MOST_AXES = 64, 32
_AT_ONCE = 16  # arrays that are read
_ITS_DIGEST = ',\n "sha256": '


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """A kind of named arrays.

  Attributes:
    kind: What is written about them.
    format: Changes with what they mean.
    remake: What to do about those that are missing or damaged, for messages.
  """

  kind: str
  format: int
  remake: str = "restore the folder from a backup"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderKind(Kind, DirectoryKind):
  """A kind of folder, which a job replaces."""

  files: tuple[str, ...] = (FOLDER_FILE, "*.bin")
  marks: tuple[str, ...] = (FOLDER_FILE,)

  def check(self, path: str | os.PathLike) -> None:
    super().check(path)
    if (object_store.absolute(path) / FOLDER_FILE).exists() and not self.is_at(path):
      raise refusal(path, f"has {FOLDER_FILE}, but is not {self.name}")

  def is_at(self, path: str | os.PathLike) -> bool:
    """Returns whether a folder of this kind is there, which may be damaged."""
    file = object_store.absolute(path) / FOLDER_FILE
    is_file = file.is_file() if object_store.is_remote(path) else os.path.isfile(file)  # no pipe
    start = f'{{\n "kind": {json.dumps(self.kind)},\n'.encode()
    return is_file and file.read_bytes().startswith(start)


class ArrayRecord(NamedTuple):
  """Shape and dtype of an array, and the SHA-256 of its bytes; None if the array is in one file."""

  shape: tuple[int, ...]
  dtype: str
  sha256: str | None = None

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) * _SIZES[self.dtype]


def named_arrays(value: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
  """Yields the arrays of a dataclass, and of dataclasses in it, with their names."""
  for field in dataclasses.fields(value):
    name, each = f"{prefix}{field.name}", getattr(value, field.name)
    if isinstance(each, np.ndarray):
      yield name, each
    elif dataclasses.is_dataclass(each):
      yield from named_arrays(each, f"{name}.")


def describe(arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
  """Returns the record of each array.

  Raises:
    ValueError: If one cannot be stored.
  """
  return {
    name: record._replace(sha256=_digest_of(as_bytes(arrays[name])))
    for name, record in _unsigned(arrays).items()
  }


def _unsigned(arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
  """Returns the record of each array without its SHA-256."""
  for name, array in arrays.items():
    _check(name, array.dtype.name, array.shape)
  return {name: ArrayRecord(array.shape, array.dtype.name) for name, array in arrays.items()}


def digest(records: Mapping[str, ArrayRecord], *others: str) -> str:
  """Returns a digest of some arrays and strings, of 32 digits."""
  content = [others, sorted((name, *record) for name, record in records.items())]
  return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def encode(kind: Kind, description: Any, records: Mapping[str, ArrayRecord]) -> bytes:
  """Returns the content of `folder.json`.

  Args:
    description: What the arrays are, a dataclass or what JSON can hold.
  """
  start = _encode(kind, description, records, indent=1).removesuffix("\n}")
  return f'{start}{_ITS_DIGEST}"{_digest_of(start.encode())}"\n}}\n'.encode()


def _encode(kind: Kind, description: Any, records: Mapping[str, ArrayRecord], **options) -> str:
  arrays = {
    name: {key: value for key, value in record._asdict().items() if value is not None}
    for name, record in records.items()
  }
  described = {"description": json_fields.as_json(description), "arrays": arrays}
  return json.dumps({"kind": kind.kind, "format": kind.format, **described}, **options)


def decode(content: bytes, kind: Kind, of: Any) -> tuple[Any, dict[str, ArrayRecord]]:
  """Returns the description and the records of a `folder.json`.

  Args:
    of: The type of the description; see `json_fields`.

  Raises:
    KeyError, TypeError, ValueError, AttributeError: If it is that of another kind or format, or not
      what was written.
  """
  found = _decode(content, kind, of)
  start, _, its_digest = content.rpartition(_ITS_DIGEST.encode())
  if its_digest != f'"{_digest_of(start)}"\n}}\n'.encode():
    raise ValueError("its SHA-256 differs from the one recorded")
  return found


def _decode(content: bytes, kind: Kind, of: Any) -> tuple[Any, dict[str, ArrayRecord]]:
  found = text_files.parse_json(content)
  if found["kind"] != kind.kind or found["format"] != kind.format:
    raise ValueError(
      f"it is {found['kind']!r:.60} of format {found['format']!r:.60}, not {kind.kind!r} of format "
      f"{kind.format}"
    )
  records = {}
  for name, record in found["arrays"].items():
    shape, dtype = tuple(record["shape"]), record["dtype"]
    _check(name, dtype, shape)
    records[name] = ArrayRecord(shape, dtype, record.get("sha256"))
  return json_fields.restored(of, found["description"]), records


def _check(name: str, dtype: str, shape: tuple[int, ...]) -> None:
  """Checks what is known of an array."""
  is_shape = len(shape) <= _MOST_AXES and all(type(size) is int and size >= 0 for size in shape)
  # NumPy has no larger array, even if one of its axes has no item.
  is_shape = is_shape and math.prod(max(1, size) for size in shape) * 8 < 2**63
  if not _NAME.fullmatch(name) or dtype not in _SIZES or not is_shape:
    raise ValueError(f"an array {name!r:.60} of {dtype!s:.60} {[*shape]!s:.60} cannot be stored")


def write(
  directory: str, arrays: Mapping[str, np.ndarray], *, kind: FolderKind, description: Any = None
) -> None:
  """Writes a folder, local or in a bucket, which need not be new.

  Raises:
    ValueError: If an array cannot be stored. Nothing is written.
  """
  content = encode(kind, description, describe(arrays))
  file = object_store.Path(directory) / FOLDER_FILE
  file.unlink(missing_ok=True)  # a folder that was there is unfinished from here on
  write_arrays(directory, arrays)
  atomic_files.write_bytes(file, content)


def write_arrays(directory: str, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes the arrays of a folder alone."""
  for name, array in arrays.items():
    atomic_files.write_bytes(_file(directory, name), as_bytes(array))


def read_arrays(directory: str, records: Mapping[str, ArrayRecord]) -> dict[str, np.ndarray]:
  """Reads several arrays at a time, local or from a bucket, and compares each with its record.

  No memory is allocated unless a file has the size that is recorded.

  Raises:
    FileNotFoundError, ValueError: If one is missing or differs.
  """
  with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
    arrays = pool.map(functools.partial(_read_array, directory), records, records.values())
    return dict(zip(records, arrays, strict=True))


def _read_array(directory: str, name: str, record: ArrayRecord) -> np.ndarray:
  file = object_store.Path(_file(directory, name))
  size = file.stat().length
  if size != record.num_bytes:
    raise ValueError(f"{name} has {size} bytes instead of {record.num_bytes}")
  array = np.empty(record.shape, record.dtype)
  object_store.read_into(as_bytes(array), file)
  if _digest_of(as_bytes(array)) != record.sha256:
    raise ValueError(f"{name} differs from {FOLDER_FILE}")
  return array


class Writer:
  """Writes a folder array by array, or many at a time, keeping no rows in memory.

  Args:
    directory: An empty one.
  """

  def __init__(self, directory: str | os.PathLike, *, kind: FolderKind):
    self._directory, self._kind = os.fspath(directory), kind
    self._columns: dict[str, Column] = {}
    self._whole: dict[str, ArrayRecord] = {}

  def column(self, name: str, dtype: np.dtype | str, shape: tuple[int, ...] = ()) -> "Column":
    """Returns a new array, whose rows are of a dtype and shape and have yet to be appended.

    Raises:
      ValueError: If it cannot be stored, or its rows have no bytes by which to count them.
    """
    _check(name, np.dtype(dtype).name, shape)
    if 0 in shape:
      raise ValueError(f"rows {[*shape]} of {name} have no bytes, so that they cannot be counted")
    self._columns[name] = Column(_file(self._directory, name), np.dtype(dtype), shape)
    return self._columns[name]

  def write(self, name: str, array: np.ndarray) -> None:
    """Writes an array.

    Raises:
      ValueError: If it cannot be stored.
    """
    self._whole |= describe({name: array})
    write_arrays(self._directory, {name: array})

  def finish(self, description: Any) -> None:
    """Writes what makes the directory a folder."""
    content = encode(self._kind, description, self.records())
    atomic_files.write_bytes(os.path.join(self._directory, FOLDER_FILE), content)

  def records(self) -> dict[str, ArrayRecord]:
    """Returns the records of all arrays, to which nothing is appended any more."""
    return {n: column.close() for n, column in self._columns.items()} | self._whole


class Column:
  """An array that is appended to."""

  def __init__(self, path: str, dtype: np.dtype, shape: tuple[int, ...]):
    self._file, self._hash, self._size = open(path, "wb"), hashlib.sha256(), 0
    self._dtype, self._shape = dtype, shape
    self._row_size = math.prod(shape) * dtype.itemsize

  def __len__(self) -> int:
    return self._size // self._row_size if self._size else 0

  def append(self, rows: bytes | memoryview) -> None:
    """Appends rows, given as bytes."""
    self._file.write(rows)
    self._hash.update(rows)
    self._size += len(rows)

  def close(self) -> ArrayRecord:
    """Flushes the array to disk."""
    if not self._file.closed:
      atomic_files.close(self._file)
    return ArrayRecord((len(self), *self._shape), self._dtype.name, self._hash.hexdigest())


Description = TypeVar("Description")


class Folder(Generic[Description]):
  """A folder whose arrays are mapped into memory, from a bucket by way of the local cache.

  Args:
    of: The type of the description.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it is of another kind or format, or damaged.
  """

  def __init__(self, directory: str | os.PathLike, *, kind: FolderKind, of: type[Description]):
    self.directory, self._kind = os.fspath(directory), kind
    self.local_directory = object_store.local_copy(directory, FOLDER_FILE)
    path = os.path.join(self.local_directory, FOLDER_FILE)
    if not os.path.exists(path):
      raise FileNotFoundError(f"{self.directory} is not {kind.name}; {kind.remake}")
    plain_files.check_file(path)
    try:
      with open(path, "rb") as file:
        found = decode(file.read(), kind, of)
    except json_fields.WRONG as error:
      raise self._damaged(FOLDER_FILE, json_fields.reason(error)) from error
    self.description: Description = found[0]
    self.records = found[1]

  def mapped(self, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Maps some arrays; from a bucket, these alone are copied.

    Raises:
      ValueError: If one is missing or of another size.
    """
    names = [*names]
    if object_store.is_remote(self.directory):
      copied = object_store.local_copy(self.directory, *(f"{name}.bin" for name in names))
      if copied != self.local_directory:
        raise ValueError(f"{self.directory} was replaced after it had been opened; open it again")
    return {name: self._map(name) for name in names}

  def check(self, shapes: Mapping[str, str], **sizes: int) -> None:
    """Checks the dtypes and shapes of some arrays; see `array_shapes.check`."""
    try:
      array_shapes.check(self.records, shapes, **sizes)
    except json_fields.WRONG as error:
      raise self._damaged(FOLDER_FILE, json_fields.reason(error)) from error

  def _map(self, name: str) -> np.ndarray:
    if (record := self.records.get(name)) is None:
      raise self._damaged(FOLDER_FILE, f"it has no {name}")
    path = _file(self.local_directory, name)
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    if size != record.num_bytes:
      raise self._damaged(f"{name}.bin", f"it has {size} bytes instead of {record.num_bytes}")
    content = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    # Items of a plain array are read several times as fast.
    return content.view(np.ndarray).view(record.dtype).reshape(record.shape)

  def _damaged(self, file: str, reason: str) -> ValueError:
    path = os.path.join(self.directory, file)
    return ValueError(f"{path} is damaged: {reason}; {self._kind.remake}")


def write_file(
  path: str, arrays: Mapping[str, np.ndarray], *, kind: Kind, description: Any = None
) -> None:
  """Writes arrays to one file, which is on the disk when this returns; no SHA-256 is recorded.

  Raises:
    ValueError: If an array cannot be stored. Nothing is written.
  """
  header = _encode(kind, description, _unsigned(arrays)).encode()
  header += b" " * _padding(8 + len(header))
  with open(path, "wb") as file:
    file.write(len(header).to_bytes(8, "little") + header)
    for array in arrays.values():
      file.write(as_bytes(array))
      file.write(bytes(_padding(array.nbytes)))
    atomic_files.close(file)
  atomic_files.sync_directory(os.path.dirname(os.path.abspath(path)))


def open_file(
  path: str | os.PathLike, *, kind: Kind, of: Any = None, shapes: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], Any]:
  """Maps the arrays of one file; returns them by name, and the description.

  Args:
    of: The type of the description.
    shapes: Of arrays that it has; see `array_shapes.check`.

  Raises:
    ValueError: If it is no such file.
  """
  try:
    with plain_files.open_plain(path) as file:
      content = np.memmap(file, np.uint8, mode="r").view(np.ndarray)
    first = 8 + int.from_bytes(content[:8].tobytes(), "little")
    description, records = _decode(content[8:first].tobytes(), kind, of)
    arrays = {}
    for name, record in records.items():
      size = record.num_bytes
      own = content[first : first + size]
      arrays[name] = own.view(record.dtype).reshape(record.shape)
      first += size + _padding(size)
    if len(content) != first:
      raise ValueError(f"it has {len(content)} bytes, not {first}")
    array_shapes.check(arrays, shapes)
    return arrays, description
  except json_fields.WRONG as error:
    reason = json_fields.reason(error)
    raise ValueError(f"{os.fspath(path)} is damaged: {reason}; {kind.remake}") from error


def _padding(size: int) -> int:
  return -size % _ALIGNMENT


def _file(directory: str, name: str) -> str:
  return os.path.join(directory, f"{name}.bin")


def _digest_of(content: bytes | memoryview) -> str:
  return hashlib.sha256(content).hexdigest()


def as_bytes(array: np.ndarray) -> memoryview:
  """Returns the bytes of an array in this machine's order, without a copy if they are so."""
  native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
  # uint8, because the buffer protocol lacks bfloat16.
  return native.reshape(-1).view(np.uint8).data
