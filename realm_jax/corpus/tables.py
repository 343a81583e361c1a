"""Tables as text (CSV, TSV); the first line names the columns: `text`, `id`, `title`, others."""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from realm_jax.corpus.documents import NOT_UTF8, BadRecord, Record, make_record
from realm_jax.corpus.input_files import InputFile

_DELIMITERS = ",\t;"
_TEXTS = ("id", "_id", "title", "text")
_LONGEST = 2**31 - 1  # characters of a cell
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,299})(\.\d+)?", re.ASCII)


def read_table(content: BinaryIO, *, file: InputFile) -> Iterator[Record]:
  """Yields the rows of one file; its header shows what separates cells."""
  csv.field_size_limit(_LONGEST)
  lines = io.TextIOWrapper(content, "utf-8-sig", newline="")
  name = file.path
  try:
    header = lines.readline()
    delimiter = max(_DELIMITERS, key=header.count)
    columns = next(csv.reader([header], delimiter=delimiter), [])
    if not header:
      return
    if "text" not in columns:
      reason = f"its first line names no column `text`: {header.strip()[:60]!r}"
      yield BadRecord(kind="broken_records", name=name, reason=reason)
      return
    for row, cells in enumerate(csv.reader(lines, delimiter=delimiter)):
      name = f"{file.path}:row {row}"
      if len(cells) > len(columns):
        reason = f"{len(cells)} cells for {len(columns)} columns; put texts into quotes"
        yield BadRecord(kind="broken_records", name=name, reason=reason)
      elif cells:
        fields = {
          column: cell if column in _TEXTS else _number(cell)
          for column, cell in zip(columns, cells, strict=False)
          if cell
        }
        yield make_record(fields, default_id=f"{file.name}:{row}", name=name)
  except UnicodeDecodeError:
    yield BadRecord(kind="broken_records", name=name, reason=NOT_UTF8)
  except csv.Error as error:
    yield BadRecord(kind="broken_records", name=name, reason=str(error))
  finally:
    lines.detach()


def _number(cell: str) -> Any:
  """Returns the number that a cell writes, such as "12.50", or the cell, such as "007"."""
  return json.loads(cell) if _NUMBER.fullmatch(cell) else cell
