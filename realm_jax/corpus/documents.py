"""Documents and bad records."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from realm_jax.corpus.input_files import InputFile

_BAD_RECORDS_NAMED = 20
NOT_UTF8 = " (not UTF-8; convert it)"


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


class BadRecords:
  """Counts bad records and names the first.

  Attributes:
    counts: Number of records of each kind.
  """

  def __init__(self):
    self.counts: Counter = Counter()
    self._names: dict[str, list[str]] = {}

  def add(self, bad: BadRecord) -> None:
    """Counts one record."""
    self.counts[bad.kind] += 1
    names = self._names.setdefault(bad.kind, [])
    if len(names) < _BAD_RECORDS_NAMED:
      names.append(bad.name)

  def report(self) -> list[str]:
    """Returns a line for each kind."""
    lines = []
    for kind, names in sorted(self._names.items()):
      more = self.counts[kind] - len(names)
      listed = ", ".join(names) + (f" and {more:,} more" if more else "")
      lines.append(f"{kind.replace('_', ' ')}: {listed}")
    return lines


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
    except UnicodeDecodeError:
      yield BadRecord(kind="broken_records", name=name + NOT_UTF8)
      continue
    except (ValueError, AttributeError):
      yield BadRecord(kind="broken_records", name=name)
      continue
    yield make_record(fields, default_id=f"{file.name}:{number}", name=name, spans=spans)
