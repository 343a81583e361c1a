"""JSON: an object a line, or objects and arrays of them over several lines."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from realm_jax.corpus import encodings
from realm_jax.corpus.documents import BadRecord, Document, Record, make_record
from realm_jax.corpus.input_files import InputFile

_NO_OBJECT = "not an object; write one JSON object a line"
_SPACE = " \t\r\n\ufeff"
_NO_SPACE = re.compile(f"[^{_SPACE}]")


def read_json(lines: Callable[[], TextIO], *, file: InputFile) -> Iterator[Record]:
  """Yields the records of one file, with `text` and, optionally, `id`, `title` and others.

  Args:
    lines: Opens the file, whose bad bytes become halves of surrogate pairs. It is read as a whole
      only if its first line does not have an object that ends there.
  """
  content = lines()
  first = next((line for line in content if line.strip(_SPACE)), "")
  if not _goes_on(first):
    yield from _read_lines(lines(), file=file)
    return
  text = first + content.read()
  try:
    if broken := encodings.broken(text):
      raise ValueError(broken)
    values = _values(text)
  except (ValueError, RecursionError) as error:
    # Perhaps one object a line after all, of which the first is broken.
    if any(isinstance(record, Document) for record in _read_lines(lines(), file=file)):
      yield from _read_lines(lines(), file=file)
    else:
      yield BadRecord(kind="broken_records", name=file.shown, reason=f"not JSON: {error}")
    return
  for number, value in enumerate(values):
    yield _record(value, file=file, number=number, name=f"{file.shown}:record {number}")


def _goes_on(line: str) -> bool:
  """Returns whether a line begins an array, or an object that does not end in it."""
  line = line.strip(_SPACE)
  try:
    return isinstance(json.loads(line), list)
  except json.JSONDecodeError as error:
    return line[:1] in ("[", "{") and error.pos >= len(line) - 1
  except (ValueError, RecursionError):
    return False


def _values(text: str) -> list[Any]:
  """Returns the values of a text, and instead of arrays their items."""
  decoder, found, place = json.JSONDecoder(), [], 0
  while begin := _NO_SPACE.search(text, place):
    value, place = decoder.raw_decode(text, begin.start())
    found += value if isinstance(value, list) else [value]
  return found


def _read_lines(lines: TextIO, *, file: InputFile) -> Iterator[Record]:
  for number, line in enumerate(lines):
    line = line.strip(_SPACE)
    if not line:
      continue
    name = f"{file.shown}:{number + 1}"
    reason = encodings.broken(line)
    try:
      value = None if reason else json.loads(line)
    except json.JSONDecodeError as error:
      reason = _NO_OBJECT if line[0] == "[" else f"{line[:40]!r} is not JSON: {error.msg}"
    except ValueError as error:
      reason = str(error)
    except RecursionError:
      reason = "nested too deep"
    if reason:
      yield BadRecord(kind="broken_records", name=name, reason=reason)
    else:
      yield _record(value, file=file, number=number, name=name)


def _record(value: Any, *, file: InputFile, number: int, name: str) -> Record:
  if not isinstance(value, dict):
    return BadRecord(kind="broken_records", name=name, reason=_NO_OBJECT)
  return make_record(value, default_id=f"{file.id}:{number}", name=name)
