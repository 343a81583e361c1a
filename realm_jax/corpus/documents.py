"""Reads documents, one validated record at a time."""

import dataclasses
import glob
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """A document of a corpus.

  Attributes:
    id: name of the document in its corpus.
    title: may be empty.
    text: the raw text.
    spans: byte offsets `(start, limit)` into `text` of salient spans found beforehand, or None
      where the text still has to be tagged.
  """

  id: str
  title: str
  text: str
  spans: tuple[tuple[int, int], ...] | None = None


def input_files(pattern: str | os.PathLike) -> list[str]:
  """Expands a glob pattern.

  Raises:
    FileNotFoundError: if no file matches.
  """
  files = sorted(glob.glob(os.fspath(pattern)))
  if not files:
    raise FileNotFoundError(f"no file matches {os.fspath(pattern)!r}")
  return files


def read_jsonl(pattern: str | os.PathLike, *, counts: Counter) -> Iterator[Document]:
  """Yields the documents of JSON Lines files, plain or gzip.

  A record has `text`, and may have `id`, `title` and `spans`; one that cannot be used is passed
  over and counted.

  Args:
    pattern: glob pattern; files are read in sorted order.
    counts: gains `documents`, `records_without_text` and `broken_records`.

  Raises:
    FileNotFoundError: if no file matches.
    ValueError: if a gzip file is cut off.
  """
  for path in input_files(pattern):
    for number, line in enumerate(_lines(path)):
      if not line.strip():
        continue
      try:
        document = _document(line, name=f"{os.path.basename(path)}:{number}")
      except (ValueError, TypeError, AttributeError):
        counts["broken_records"] += 1
        continue
      if not document.text.strip():
        counts["records_without_text"] += 1
        continue
      counts["documents"] += 1
      yield document


def _lines(path: str) -> Iterator[bytes]:
  with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
    try:
      yield from file
    except EOFError as error:
      raise ValueError(f"{path} is cut off; get the whole file") from error


def _document(line: bytes, *, name: str) -> Document:
  record = json.loads(line.decode("utf-8"))
  text = record.get("text") or ""
  title = str(record.get("title") or "")
  (title + text).encode()  # JSON can hold half of a surrogate pair, UTF-8 cannot
  spans = record.get("spans")
  return Document(
    id=str(record.get("id", name)),
    title=title,
    text=text.strip() if spans is None else text,
    spans=None if spans is None else tuple((int(a), int(b)) for a, b in spans),
  )
