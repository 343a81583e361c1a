"""Tables as text (CSV, TSV); the first line names the columns: `text`, `id`, `title`, others."""

import collections
import csv
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import TextIO

from realm_jax.corpus import encodings
from realm_jax.corpus.documents import BadRecord, Record, make_record
from realm_jax.corpus.input_files import InputFile

_DELIMITERS = ",\t;|"
_TEXTS = ("id", "_id", "title", "text")
_LONGEST = 2**26  # characters of a cell
_LARGEST = 2**53  # beyond which some readers of JSON change whole numbers


def read_table(lines: Callable[[], TextIO], *, file: InputFile) -> Iterator[Record]:
  """Yields the rows of one file; its header shows what separates cells.

  A column has numbers if each of its cells is what its number is written as; otherwise its cells
  are texts, such as "1.10" or "007". Columns without a name are left out.

  Args:
    lines: Opens the file, whose bad bytes become halves of surrogate pairs; it is read twice.
  """
  csv.field_size_limit(_LONGEST)
  header = lines().readline()
  if not header:
    return
  delimiter = max(_DELIMITERS, key=header.count)
  columns = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
  twice = [name for name in columns if name and columns.count(name) > 1]
  reason = encodings.broken(header)
  if not {"text", "title"} & {*columns}:
    reason = reason or f"its first line names no column `text`: {header.strip()[:60]!r}"
  elif twice:
    reason = f"its first line names several columns {twice[0]!r}"
  if reason:
    yield BadRecord(kind="broken_records", name=file.shown, reason=reason)
    return
  rows = functools.partial(_rows, lines, delimiter=delimiter, num_columns=len(columns))
  numeric = [name not in _TEXTS for name in columns]
  for cells in rows():
    if not isinstance(cells, str):
      for column, cell in enumerate(cells[: len(columns)]):
        if numeric[column] and cell and _number(cell) is None:
          numeric[column] = False
  for row, cells in enumerate(rows()):
    name = f"{file.shown}:row {row}"
    if isinstance(cells, str):
      yield BadRecord(kind="broken_records", name=name, reason=cells)
    elif cells:
      fields = {
        column: _number(cell) if is_number else cell
        for column, cell, is_number in zip(columns, cells, numeric, strict=False)
        if column and cell
      }
      yield make_record(fields, default_id=f"{file.id}:{row}", name=name)


def _rows(
  lines: Callable[[], TextIO], *, delimiter: str, num_columns: int
) -> Iterator[list[str] | str]:
  """Yields the cells of each row, or what is wrong with it.

  A quotation mark that opens a cell swallows no other rows: it is part of the text if another one
  follows that does not close it, if none follows at all, or, in a table of tabs, if what it would
  quote has a line's end and a tab.
  """
  content, waiting = enumerate(lines(), start=1), collections.deque[tuple[int, str]]()
  next(content)

  def upcoming() -> tuple[int, str] | None:
    return waiting.popleft() if waiting else next(content, None)

  def quoted(line: str) -> list[str] | None:
    """Returns the cells of a row that begins with this line, and drops its other lines."""
    ahead: list[tuple[int, str]] = []

    def following() -> Iterator[str]:
      for numbered in iter(upcoming, None):
        ahead.append(numbered)
        yield numbered[1]

    try:
      read = csv.reader(itertools.chain([line], following()), delimiter=delimiter, strict=True)
      cells = next(read)
    except csv.Error:
      cells = None
    if cells is None or (delimiter == "\t" and any("\t" in c and "\n" in c for c in cells)):
      waiting.extendleft(reversed(ahead))
      return None
    return cells

  for number, line in iter(upcoming, None):
    cells = quoted(line) if '"' in line else None
    if cells is None:
      cells = line.rstrip("\r\n").split(delimiter)
    while len(cells) > num_columns and not cells[-1]:
      del cells[-1]
    if reason := encodings.broken("".join(cells)):
      yield reason
    elif len(cells) <= num_columns:
      yield cells if cells != [""] else []
    elif line.count('"') % 2:
      yield f"the quotation mark on line {number} is not closed"
    else:
      yield f"{len(cells)} cells for {num_columns} columns; put texts into quotes"


def _number(cell: str) -> int | float | None:
  """Returns the number of a cell, such as "12.5"; None if a number would be written otherwise."""
  if not (cell[-1].isdigit() and cell[0] in "-0123456789"):
    return None
  try:
    number = json.loads(cell)
  except ValueError:
    return None
  is_same = json.dumps(number) == cell and (isinstance(number, float) or abs(number) <= _LARGEST)
  return number if is_same else None
