"""Parquet files with `text`, `id`, `title` and other columns, as in `wikimedia/wikipedia`."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from realm_jax.corpus.documents import BadRecord, Record, make_record
from realm_jax.corpus.encodings import NOT_UTF8
from realm_jax.corpus.input_files import InputFile

_ROWS_AT_ONCE = 256
_TEXTS = ("id", "_id", "title", "text")


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
    yield from _rows(content, file)
  except (pyarrow.ArrowException, OSError) as error:
    raise ValueError(f"{file.shown} cannot be read as Parquet ({error})") from error


def _rows(content: BinaryIO, file: InputFile) -> Iterator[Record]:
  import pyarrow
  from pyarrow import parquet

  table = parquet.ParquetFile(content)
  schema = table.schema_arrow
  if not {"text", "title"} & {*schema.names}:
    raise ValueError(f"{file.shown} has the columns {', '.join(schema.names)} and no `text`")
  for field in schema:
    if field.name in _TEXTS and pyarrow.types.is_nested(field.type):
      raise ValueError(f"{file.shown} has {field.type} in its column `{field.name}`, not text")
  row = 0
  for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=_readable(table.schema)):
    columns = [
      _values(_as_text(column) if name in _TEXTS else column)
      for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    for cells in zip(*columns, strict=True):
      name = f"{file.shown}:row {row}"
      if any(isinstance(cell, UnicodeDecodeError) for cell in cells):
        yield BadRecord(kind="broken_records", name=name, reason=NOT_UTF8)
      else:
        fields = dict(zip(batch.schema.names, cells, strict=True))
        yield make_record(fields, default_id=f"{file.id}:{row}", name=name)
      row += 1


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


def _values(column) -> list[Any]:
  """Returns the values of a column, of which pyarrow would refuse all for one that is no UTF-8."""
  try:
    values = column.to_pylist()
  except UnicodeDecodeError:
    return [*map(_value, column)]
  return [*map(_value, column)] if any(isinstance(v, bytes) for v in values) else values


def _value(scalar) -> Any:
  try:
    value = scalar.as_py()
    return value.decode() if isinstance(value, bytes) else value
  except UnicodeDecodeError as error:
    return error
