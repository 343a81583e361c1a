"""Parquet files with the columns `id`, `title` and `text`, as in the `wikimedia/wikipedia` set."""

from collections.abc import Iterator
from typing import BinaryIO

from realm_jax.corpus.documents import NOT_UTF8, BadRecord, Record, make_record
from realm_jax.corpus.input_files import InputFile

_ROWS_AT_ONCE = 256


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
      f"{file.path} needs pyarrow ({error}); install realm_jax with the extra `parquet`"
    ) from error
  try:
    table = parquet.ParquetFile(content)
  except pyarrow.ArrowInvalid as error:
    raise ValueError(f"{file.path} is not a complete Parquet file ({error})") from error
  schema = table.schema_arrow
  if "text" not in schema.names:
    raise ValueError(f"{file.path} has the columns {', '.join(schema.names)} and no `text`")
  columns = [name for name in ("id", "title", "text") if name in schema.names]
  row = 0
  for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
    # As bytes, because pyarrow reports broken UTF-8 only as an error for the whole batch.
    values = [_as_bytes(pyarrow, batch.column(name)).to_pylist() for name in columns]
    for cells in zip(*values, strict=True):
      name = f"{file.path}:row {row}"
      try:
        fields = {
          column: cell.decode()
          for column, cell in zip(columns, cells, strict=True)
          if cell is not None
        }
      except UnicodeDecodeError:
        yield BadRecord(kind="broken_records", name=name, reason=NOT_UTF8)
      else:
        yield make_record(fields, default_id=f"{file.name}:{row}", name=name)
      row += 1


def _as_bytes(pyarrow, column):
  """Returns a column as bytes; numbers are formatted as text first."""
  is_text = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
  return (column if is_text else column.cast(pyarrow.string())).cast(pyarrow.large_binary())
