"""Tables as text, such as CSV and TSV: rows under a header that names their columns."""

import collections
import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TextIO

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, Record, make_record, written_number
from realm_jax.corpus.input_files import InputFile, lines_of, text_error

_TEXTS = ("id", "_id", "title", "text")
_DELIMITERS = ",\t;|"
_DELIMITER_LINE = re.compile(r"sep=(.)\s*")  # before the header, as Excel has it
_HEADER_LINES = 20  # of a header whose names have line ends, and before it


def read_table(lines: Callable[[], TextIO], *, file: InputFile) -> Iterator[Record]:
  """Yields the rows of one file; its header shows what separates cells.

  A column has numbers if each of its cells is what its number is written as; otherwise its cells
  are texts, such as "1.10" or "007". Columns without a name are left out.

  Args:
    lines: Opens the file, whose bad bytes become halves of surrogate pairs; it is read twice.
  """
  csv.field_size_limit(limits.RECORD)
  header = _header(lines())
  if not header:
    return
  if isinstance(header, str):
    yield BadRecord(kind="broken_records", name=file.shown, reason=header)
    return
  columns, rows = header.columns, functools.partial(_rows, lines, header)
  numeric = [name not in _TEXTS for name in columns]
  for cells in rows():
    if not isinstance(cells, str):
      for column, cell in enumerate(cells[: len(columns)]):
        if numeric[column] and cell and written_number(cell) is None:
          numeric[column] = False
  for row, cells in enumerate(rows()):
    name = f"{file.shown}:row {row}"
    if isinstance(cells, str):
      yield BadRecord(kind="broken_records", name=name, reason=cells)
    elif cells:
      fields = {
        column: written_number(cell) if is_number else cell
        for column, cell, is_number in zip(columns, cells, numeric, strict=False)
        if column and cell
      }
      yield make_record(fields, default_id=f"{file.id}:{row}", name=name)


class _Header(NamedTuple):
  """What the first lines of a table tell.

  Attributes:
    num_lines: Those that it takes, with those before it.
    has_spaces: Whether a space follows each delimiter, and belongs to no cell.
  """

  columns: list[str]
  delimiter: str
  num_lines: int
  has_spaces: bool


def _header(lines: TextIO) -> _Header | str | None:
  """Returns the header of a table, or what is wrong with it; None if there is none."""
  beginning, size = [], 0
  for line in itertools.islice(lines_of(lines), _HEADER_LINES):
    beginning.append(line)
    if (size := size + len(line)) > limits.RECORD:
      break
  first, *others = beginning or [""]
  delimiters, before = _DELIMITERS, 0
  while others and (not first.strip() or _DELIMITER_LINE.fullmatch(first)):
    named = _DELIMITER_LINE.fullmatch(first)
    delimiters = named[1] if named else delimiters
    first, *others = others
    before += 1
  if not first.strip():
    return None
  most = max(delimiters, key=first.count)
  if reason := text_error(first) or limits.too_many_fields(first.count(most) + 1):
    return reason
  for delimiter in sorted(delimiters, key=first.count, reverse=True):
    spaced = 0 < first.count(delimiter) == first.count(f"{delimiter} ")
    reader = csv.reader([first, *others], delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
      cells, num_lines = next(reader), reader.line_num
    except csv.Error:
      cells, num_lines = first.split(delimiter), 1
    columns = [name.strip() for name in cells]
    if {"text", "title"} & {*columns}:
      names = collections.Counter(filter(None, columns))
      if twice := next((name for name, count in names.items() if count > 1), None):
        return f"its first line names several columns {twice!r}"
      return _Header(columns, delimiter, before + num_lines, spaced)
  return f"its first line names no column `text`: {first.strip()[:60]!r}"


def _rows(lines: Callable[[], TextIO], header: _Header) -> Iterator[list[str] | str]:
  """Yields the cells of each row, or what is wrong with it.

  A quotation mark that opens a cell swallows no other rows: it is part of the text if another one
  follows that does not close it, if none follows at all, or, in a table of tabs, if what it would
  quote has a line's end and a tab.
  """
  delimiter, num_columns = header.delimiter, len(header.columns)
  content, waiting = enumerate(lines_of(lines()), start=1), collections.deque[tuple[int, str]]()
  collections.deque(itertools.islice(content, header.num_lines), maxlen=0)
  unclosed = 0  # line before which no quotation goes on, so that each is read a few times at most

  def upcoming() -> tuple[int, str] | None:
    return waiting.popleft() if waiting else next(content, None)

  def quoted(number: int, line: str, escape: str | None = None) -> list[str] | None:
    """Returns the cells of a row that begins with this line, and drops its other lines."""
    nonlocal unclosed
    ahead: list[tuple[int, str]] = []

    def following() -> Iterator[str]:
      size = 0
      while number >= unclosed and len(ahead) < limits.ROW_LINES and size < limits.RECORD:
        if not (numbered := upcoming()):
          return
        ahead.append(numbered)
        size += len(numbered[1])
        yield numbered[1]

    try:
      cells = next(
        csv.reader(
          itertools.chain([line], following()),
          delimiter=delimiter,
          escapechar=escape,
          skipinitialspace=header.has_spaces,
          strict=True,
        )
      )
    except csv.Error:
      cells = None
    if cells is None or (delimiter == "\t" and any("\t" in c and "\n" in c for c in cells)):
      waiting.extendleft(reversed(ahead))
      if not escape and '\\"' in line:  # as databases write quotation marks
        return quoted(number, line, "\\")
      unclosed = ahead[-1][0] if ahead else unclosed
      return None
    return cells

  for number, line in iter(upcoming, None):
    if line == "\n":
      yield []
      continue
    cells = quoted(number, line) if '"' in line else None
    if cells is None:
      cells = line.rstrip("\r\n").split(delimiter)
      if header.has_spaces:
        cells = [cell.lstrip(" ") for cell in cells]
    while len(cells) > num_columns and not cells[-1]:
      del cells[-1]
    if reason := text_error(line if len(line) > limits.RECORD else "".join(cells)):
      yield reason
    elif len(cells) <= num_columns:
      yield cells if cells != [""] else []
    elif line.count('"') % 2:
      yield f"the quotation mark on line {number} is not closed"
    else:
      yield f"{len(cells)} cells for {num_columns} columns; put texts into quotes"
