"""Parquet files with `text`, `id`, `title` and other columns, as in `wikimedia/wikipedia`."""

from collections.abc import Iterator
from typing import BinaryIO

from realm_jax.corpus.documents import BadRecord, Record, make_record
from realm_jax.corpus.encodings import NOT_UTF8
from realm_jax.corpus.input_files import InputFile

_ROWS_AT_ONCE = 256
_TEXTS = ("id", "title", "text")


def read_parquet(content: BinaryIO, *, file: InputFile) -> Iterator[Record]:
  """Yields the rows of one file.

  Raises:
    ValueError: If it is not a Parquet file, has no column `text`, or pyarrow is not installed.
  """
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ValueError(
      f"{file.shown} needs pyarrow ({error}); install realm_jax with the extra `parquet`"
    ) from error
  try:
    table = parquet.ParquetFile(content)
  except pyarrow.ArrowInvalid as error:
    raise ValueError(f"{file.shown} is not a complete Parquet file ({error})") from error
  schema = table.schema_arrow
  if "text" not in schema.names:
    raise ValueError(f"{file.shown} has the columns {', '.join(schema.names)} and no `text`")
  columns = [
    field.name
    for field in schema
    if field.name in _TEXTS or not pyarrow.types.is_binary(field.type)
  ]
  row = 0
  for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
    # As bytes, because pyarrow reports broken UTF-8 only as an error for the whole batch.
    values = [
      (_as_bytes(pyarrow, column) if name in _TEXTS or _is_text(pyarrow, column) else column)
      for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    for cells in zip(*(column.to_pylist() for column in values), strict=True):
      name = f"{file.shown}:row {row}"
      try:
        fields = {
          column: cell.decode() if isinstance(cell, bytes) else cell
          for column, cell in zip(batch.schema.names, cells, strict=True)
          if cell is not None
        }
      except UnicodeDecodeError:
        yield BadRecord(kind="broken_records", name=name, reason=NOT_UTF8)
      else:
        yield make_record(fields, default_id=f"{file.id}:{row}", name=name)
      row += 1


def _as_bytes(pyarrow, column):
  """Returns a column as bytes; numbers are formatted as text first."""
  text = column if _is_text(pyarrow, column) else column.cast(pyarrow.string())
  return text.cast(pyarrow.large_binary())


def _is_text(pyarrow, column) -> bool:
  return pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
