"""Documents, bad records, and input files."""

import dataclasses
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from realm_jax import object_store


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
  """A file of a corpus.

  Attributes:
    name: Its path below the directory that all inputs share; documents without an id are named
      after it.
  """

  path: str
  name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """A document of a corpus.

  Attributes:
    id: Name of the document in its corpus.
    title: May be empty.
    spans: Byte offsets `(start, limit)` into `text` of salient spans in the input; None if the text
      has yet to be tagged.
  """

  id: str
  title: str
  text: str
  spans: tuple[tuple[int, int], ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecord:
  """A record that yields no document.

  Attributes:
    name: Its file and line, row or page.
  """

  kind: Literal["broken_records", "records_without_text"]
  name: str


Record = Document | BadRecord


def make_record(
  fields: dict, *, default_id: str, name: str, spans: Iterable[Sequence[int]] | None = None
) -> Record:
  """Validates `id`, `title` and `text` of one record.

  Args:
    fields: Content of the record; only `text` is required. The id may also be called `_id`.
    default_id: Id of a document without one.
    name: File and line, row or page of the record.
    spans: Byte offsets of salient spans, or None.

  Returns:
    The document, or a bad record if there is no text or it is not valid Unicode.
  """
  try:
    text = fields.get("text") or ""
    title = str(fields.get("title") or "")
    (title + text).encode()  # JSON can contain half of a surrogate pair, UTF-8 cannot
    if not text.strip():
      return BadRecord(kind="records_without_text", name=name)
    return Document(
      id=str(fields.get("id", fields.get("_id", default_id))),
      title=title,
      # Offsets count the white space as well.
      text=text.strip() if spans is None else text,
      spans=None if spans is None else tuple((int(a), int(b)) for a, b in spans),
    )
  except (ValueError, TypeError, AttributeError):
    return BadRecord(kind="broken_records", name=name)


def read_json_lines(lines: Iterable[bytes], *, file: InputFile) -> Iterator[Record]:
  """Yields the records of JSON Lines with `text` and, optionally, `id`, `title` and `spans`."""
  for number, line in enumerate(lines):
    if not line.strip():
      continue
    name = f"{file.path}:{number + 1}"
    try:
      fields = json.loads(line.decode("utf-8-sig"))
      spans = fields.get("spans")
    except (ValueError, AttributeError):
      yield BadRecord(kind="broken_records", name=name)
      continue
    yield make_record(fields, default_id=f"{file.name}:{number}", name=name, spans=spans)


def input_files(pattern: str | os.PathLike) -> list[str]:
  """Expands a glob pattern, in which `**` matches directories; a directory means all files below.

  In an object store, returns the addresses of the objects.

  Raises:
    FileNotFoundError: If no file matches.
  """
  if object_store.is_remote(pattern):
    return object_store.list_files(os.fspath(pattern))
  files = []
  for path in glob.glob(os.fspath(pattern), recursive=True):
    if os.path.isdir(path):
      below = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
      files += filter(os.path.isfile, below)
    else:
      files.append(path)
  if not files:
    raise FileNotFoundError(f"no file matches {os.fspath(pattern)!r}")
  return sorted(set(files))


def find_files(
  inputs: Sequence[str], *, expand: Callable[[str], Sequence[str]] = input_files
) -> list[list[InputFile]]:
  """Returns the files of each input, a glob pattern or a directory.

  Args:
    inputs: Glob patterns or directories.
    expand: Lists the files of an input.

  Raises:
    FileNotFoundError: If no file matches one of them.
  """
  found = {input: list(expand(input)) for input in inputs}
  roots = [os.path.abspath(_root(input, paths)) for input, paths in found.items()]
  root = os.path.commonpath(roots)
  return [
    [InputFile(path=path, name=os.path.relpath(path, root)) for path in found[input]]
    for input in inputs
  ]


def _root(input: str, paths: Sequence[str]) -> str:
  """Returns the directory above the first wildcard of an input."""
  fixed = re.split(r"[*?\[]", input, maxsplit=1)[0]
  is_file = list(map(os.path.abspath, paths)) == [os.path.abspath(input)]
  return input if fixed == input and not is_file else os.path.dirname(fixed)
