"""Documents and bad records."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from realm_jax.corpus.field_values import is_missing, plain
from realm_jax.corpus.passage_store import passage_uid
from realm_jax.corpus.uid_set import UidSet

_NAMED = 20
_OWN_FIELDS = ("id", "_id", "title", "text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """A document of a corpus.

  Attributes:
    id: Name of the document in its corpus.
    title: May be empty, or all that there is.
    spans: Byte offsets `(start, limit)` into `text` of salient spans in the input; None if the text
      has yet to be tagged.
    fields: What else its record has, as values of JSON.
  """

  id: str
  title: str
  text: str
  spans: tuple[tuple[int, int], ...] | None = None
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecord:
  """A record that yields no document.

  Attributes:
    name: Its file and line, row or page.
    reason: What is wrong with it, if the kind does not say it.
  """

  kind: Literal["broken_records", "records_without_text"]
  name: str
  reason: str = dataclasses.field(default="", compare=False)


Record = Document | BadRecord


class BadRecords:
  """Counts and names bad records, and ids that several documents have.

  Attributes:
    counts: Number of bad records of each kind.
  """

  def __init__(self):
    self.counts: Counter = Counter()
    self._first: dict[str, list[BadRecord]] = {}
    self._ids = UidSet()
    self._num_equal_ids = 0
    self._equal_ids: list[str] = []

  def add(self, bad: BadRecord) -> None:
    """Counts one record."""
    self.counts[bad.kind] += 1
    first = self._first.setdefault(bad.kind, [])
    if len(first) < _NAMED:
      first.append(bad)

  def add_ids(self, ids: Sequence[str]) -> None:
    """Counts the documents that have the id of an earlier one."""
    new = self._ids.add([passage_uid("", id) for id in ids])
    again = [id for id, is_new in zip(ids, new, strict=True) if not is_new]
    self._num_equal_ids += len(again)
    self._equal_ids += again[: _NAMED - len(self._equal_ids)]

  def report(self) -> list[str]:
    """Returns a line for each kind, with each reason once."""
    lines = []
    for kind, first in sorted(self._first.items()):
      names, reasons = [], {""}
      for bad in first:
        names.append(bad.name if bad.reason in reasons else f"{bad.name} ({bad.reason})")
        reasons.add(bad.reason)
      lines.append(f"{kind.replace('_', ' ')}: {_listed(names, self.counts[kind])}")
    if self._equal_ids:
      lines.append(
        "documents with the id of an earlier one, which judgements cannot tell apart: "
        f"{_listed(list(map(repr, self._equal_ids)), self._num_equal_ids)}"
      )
    return lines


def _listed(names: Sequence[str], count: int) -> str:
  return ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")


def make_record(fields: Mapping[str, Any], *, default_id: str, name: str) -> Record:
  """Validates one record.

  Args:
    fields: Content of the record; only `text` or `title` is required. The id may also be called
      `_id`. What is empty counts as missing. Pairs of byte offsets in `spans` are salient spans.
    default_id: Id of a document without one.
    name: File and line, row or page of the record.

  Returns:
    The document, or a bad record if it has neither text nor title, or something that is not valid
    Unicode or that JSON cannot hold.
  """
  spans = fields.get("spans")
  fields = {str(key): value for key, value in fields.items() if not _is_empty(value)}
  try:
    id, title = (_name(fields, key) for key in ("id", "title"))
    text = fields.get("text", "")
    if not isinstance(text, str):
      raise ValueError(f"`text` is {text!r:.40}, not a string")
    try:
      (id + title + text).encode()
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair, UTF-8 cannot
      raise ValueError("half of a surrogate pair, which is not Unicode") from error
    if not text.strip() and not title.strip():
      return BadRecord(kind="records_without_text", name=name)
    # Offsets count the white space as well.
    spans = _pairs(spans) if text.strip() else None
    return Document(
      id=id or default_id,
      title=title,
      text=text.strip() if spans is None else text,
      spans=spans,
      fields=plain({key: value for key, value in fields.items() if key not in _OWN_FIELDS}),
    )
  except ValueError as error:
    return BadRecord(kind="broken_records", name=name, reason=str(error))


def _name(fields: Mapping[str, Any], key: str) -> str:
  """Returns an id or a title, which may be a number or a date."""
  value = fields.get(key, fields.get("_id", "") if key == "id" else "")
  if isinstance(value, (list, tuple, Mapping, bytes)):
    raise ValueError(f"`{key}` is {value!r:.40}, not a string")
  return str(value)


def _is_empty(value: Any) -> bool:
  return not value if isinstance(value, (str, list, tuple, dict)) else is_missing(value)


def _pairs(spans: Any) -> tuple[tuple[int, int], ...] | None:
  """Returns pairs of byte offsets; None for other annotations, such as mappings."""
  if not isinstance(spans, (list, tuple)) or any(isinstance(span, Mapping) for span in spans):
    return None
  try:
    return tuple((int(a), int(b)) for a, b in spans)
  except (TypeError, ValueError) as error:
    raise ValueError(f"`spans` are {spans!r:.40}, not pairs of byte offsets") from error
