"""The records of a file of JSON or Parquet.

Records have a `text` or a `title`, and may have an `id` and other fields.
"""

import collections
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TextIO

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, Document, Record, make_record
from realm_jax.corpus.input_files import NOT_UTF8, InputFile, lines_of, text_error
from realm_jax.foundations import text_files

_TEXTS = ("id", "_id", "title", "text")

_NO_OBJECT = "not an object; write one JSON object a line"
_SPACE = " \t\r\n\x1e\ufeff"  # and what begins a record of JSON Text Sequences
_NO_SPACE = re.compile(f"[^{_SPACE}]")

_ROWS_AT_ONCE = 256


def read_json(lines: Callable[[], TextIO], *, file: InputFile) -> Iterator[Record]:
  """Yields the records of one file, with `text` and, optionally, `id`, `title` and others.

  Args:
    lines: Opens the file, whose bad bytes become halves of surrogate pairs. It is read as a whole
      only if its first line does not have an object that ends there.
  """
  content = lines()
  first = next((line for line in lines_of(content) if line.strip(_SPACE)), "")
  if not _goes_on(first):
    yield from _read_lines(lines(), file=file)
    return
  text = first + content.read(limits.WHOLE_JSON)
  if len(text) > limits.WHOLE_JSON:
    reason = f"{limits.too_long(limits.WHOLE_JSON)}, or write one JSON object a line"
    yield BadRecord(kind="broken_records", name=file.shown, reason=reason)
    return
  reason = text_error(text, limit=limits.WHOLE_JSON)
  try:
    if not reason:
      collections.deque(_values(text), maxlen=0)  # that all is JSON is known before any is read
  except (ValueError, RecursionError) as error:
    reason = _json_error(error)
  if not reason:
    for number, value in enumerate(_values(text)):
      yield _record(value, file=file, number=number, name=f"{file.shown}:record {number}")
  # Perhaps one object a line after all, of which the first is broken.
  elif any(isinstance(record, Document) for record in _read_lines(lines(), file=file)):
    yield from _read_lines(lines(), file=file)
  else:
    yield BadRecord(kind="broken_records", name=file.shown, reason=reason)


def _goes_on(line: str) -> bool:
  """Returns whether a line begins an array, or an object that does not end in it."""
  line = line.strip(_SPACE)
  if line[:1] == "[":
    return True
  if len(line) > limits.RECORD:
    return line[0] == "["
  try:
    return isinstance(text_files.DECODER.decode(line), list)
  except json.JSONDecodeError as error:
    return line[:1] in ("[", "{") and error.pos >= len(line) - 1
  except (ValueError, RecursionError):
    return False


def _values(text: str) -> Iterator[Any]:
  """Yields the values of a text, and instead of arrays their items."""
  decoder, place = text_files.DECODER, 0
  while begin := _NO_SPACE.search(text, place):
    place = begin.start()
    if begin[0] != "[":
      value, place = decoder.raw_decode(text, place)
      yield value
      continue
    place, mark = _next(text, place + 1)
    while mark != "]":
      value, place = decoder.raw_decode(text, place)
      yield value
      place, mark = _next(text, place)
      if mark == ",":
        place, _ = _next(text, place + 1)
      elif mark != "]":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
    place += 1


def _next(text: str, place: int) -> tuple[int, str]:
  """Returns where the next character is that is no space, and this."""
  found = _NO_SPACE.search(text, place)
  return (found.start(), found[0]) if found else (len(text), "")


def _read_lines(lines: TextIO, *, file: InputFile) -> Iterator[Record]:
  for number, line in enumerate(lines_of(lines)):
    line = line.strip(_SPACE)
    if not line:
      continue
    name = f"{file.shown}:{number + 1}"
    reason = text_error(line)
    try:
      value = None if reason else text_files.DECODER.decode(line)
    except json.JSONDecodeError as error:
      reason = _NO_OBJECT if line[0] == "[" else f"{line[:40]!r} is not JSON: {error.msg}"
    except (ValueError, RecursionError) as error:
      reason = _json_error(error)
    if reason:
      yield BadRecord(kind="broken_records", name=name, reason=reason)
    else:
      yield _record(value, file=file, number=number, name=name)


def _json_error(error: Exception) -> str:
  reason = text_files.json_error(error)
  return f"not JSON: {reason}" if isinstance(error, json.JSONDecodeError) else reason


def _record(value: Any, *, file: InputFile, number: int, name: str) -> Record:
  if not isinstance(value, dict):
    return BadRecord(kind="broken_records", name=name, reason=_NO_OBJECT)
  return make_record(value, default_id=f"{file.id}:{number}", name=name)


def read_parquet(content: BinaryIO, *, file: InputFile) -> Iterator[Record]:
  """Yields the rows of one file, without what is bytes.

  Raises:
    ValueError: If it is not a Parquet file or damaged, has no column `text` or another type there,
      or pyarrow is not installed.
  """
  try:
    import pyarrow
  except ImportError as error:
    raise ValueError(
      f"{file.shown} needs pyarrow ({error}); install realm_jax with the extra `parquet`"
    ) from error
  try:
    yield from _parquet_rows(content, file)
  except (pyarrow.ArrowException, OSError) as error:
    raise ValueError(f"{file.shown} cannot be read as Parquet ({error})") from error


def _parquet_rows(content: BinaryIO, file: InputFile) -> Iterator[Record]:
  import pyarrow
  from pyarrow import parquet

  size = content.seek(0, io.SEEK_END)
  table = parquet.ParquetFile(content)
  schema = table.schema_arrow
  groups = map(table.metadata.row_group, range(table.num_row_groups))
  unpacked = sum(group.total_byte_size for group in groups)
  if reason := limits.unpacked_error(size, unpacked) or limits.too_many_fields(len(schema.names)):
    raise ValueError(f"{file.shown}: {reason}")
  if not {"text", "title"} & {*schema.names}:
    raise ValueError(f"{file.shown} has the columns {', '.join(schema.names)} and no `text`")
  if twice := next((name for name, n in collections.Counter(schema.names).items() if n > 1), None):
    raise ValueError(f"{file.shown} has several columns {twice!r}")
  for field in schema:
    if field.name in _TEXTS and pyarrow.types.is_nested(field.type):
      raise ValueError(f"{file.shown} has {field.type} in its column `{field.name}`, not text")
  if not table.metadata.num_rows:
    yield BadRecord(kind="records_without_text", name=file.shown, reason="the file is empty")
  batches = table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=_readable(table.schema))
  unpacked = 0

  def bounded(batch):
    nonlocal unpacked
    unpacked += batch.nbytes  # values may be stored once for many rows
    if reason := limits.unpacked_error(size, unpacked):
      raise ValueError(f"{file.shown}: {reason}")
    return batch

  rows = itertools.chain.from_iterable(arrow_rows(bounded(batch)) for batch in batches)
  for row, fields in enumerate(rows):
    name = f"{file.shown}:row {row}"
    if isinstance(fields, str):
      yield BadRecord(kind="broken_records", name=name, reason=fields)
    else:
      yield make_record(fields, default_id=f"{file.id}:{row}", name=name)


def arrow_rows(batch) -> Iterator[dict[str, Any] | str]:
  """Yields the rows of a batch of Arrow, or what is wrong with one; ids and titles are texts."""
  names = batch.schema.names
  columns = [
    _column_values(_as_text(column) if name in _TEXTS else column)
    for name, column in zip(names, batch.columns, strict=True)
  ]
  for cells in zip(*columns, strict=True):
    wrong = next((pair for pair in enumerate(cells) if isinstance(pair[1], Exception)), None)
    if wrong is None:
      yield dict(zip(names, cells, strict=True))
    elif isinstance(wrong[1], UnicodeDecodeError):
      yield NOT_UTF8
    else:
      yield f"`{names[wrong[0]]}` has a value that Python cannot hold ({wrong[1]})"


def _readable(schema) -> list[str]:
  """Returns the paths of all values except bytes, such as an image in a structure."""
  leaves = [schema.column(i) for i in range(len(schema))]
  return [leaf.path for leaf in leaves if leaf.path in _TEXTS or not _is_bytes(leaf)]


def _is_bytes(leaf) -> bool:
  is_array = leaf.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
  return is_array and leaf.logical_type.type == "NONE" and leaf.converted_type == "NONE"


def _as_text(column):
  """Returns a column of numbers or dates as texts."""
  import pyarrow

  types = pyarrow.types
  if types.is_binary(column.type) or types.is_large_binary(column.type):
    return column  # whose broken rows would not be told apart
  return column.cast(pyarrow.string())


def _column_values(column) -> list[Any]:
  """Returns the values of a column, or an error in the place of each that Python cannot hold, for
  which pyarrow would refuse all."""
  try:
    values = column.to_pylist()
  except (ValueError, OverflowError):  # no UTF-8, or a time outside the years 1 to 9999
    return [*map(_scalar, column)]
  return [*map(_scalar, column)] if any(isinstance(v, bytes) for v in values) else values


def _scalar(scalar) -> Any:
  try:
    value = scalar.as_py()
    return value.decode() if isinstance(value, bytes) else value
  except (ValueError, OverflowError) as error:
    return error
