"""Documents, made of records whose values come from any library, and records that yield none."""

import dataclasses
import datetime
import decimal
import json
import numbers
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from realm_jax.corpus import limits
from realm_jax.corpus.formats.outline import Mark
from realm_jax.corpus.passage_store import passage_uid

_NAMED = 20
_SHOWN = 60  # characters of a value in a message
_LARGEST = 2**53  # beyond which some readers of JSON change whole numbers
_NAMES = (str, numbers.Number, datetime.date, datetime.time, np.datetime64, uuid.UUID, os.PathLike)
_TIMES = (datetime.datetime, np.datetime64, np.timedelta64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """A document of a corpus.

  Attributes:
    id: Name of the document in its corpus.
    title: May be empty, or all that there is.
    spans: Byte offsets `(start, limit)` into `text` of salient spans in the input; None if the text
      has yet to be tagged.
    fields: What else its record has, as values of JSON.
    file: What a knowledge base knows its file by; "" for none.
    outline: Where its pages and sections begin, in order.
  """

  id: str
  title: str
  text: str
  spans: tuple[tuple[int, int], ...] | None = None
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
  file: str = dataclasses.field(default="", compare=False)
  outline: tuple[Mark, ...] = dataclasses.field(default=(), compare=False)


BadKind = Literal["broken_records", "records_without_text", "skipped_files", "unreadable_files"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecord:
  """A record that yields no document.

  Attributes:
    name: Its file and line, row or page, or a file or folder of which nothing was read.
    reason: What is wrong with it, if the kind does not say it.
  """

  kind: BadKind
  name: str
  reason: str = dataclasses.field(default="", compare=False)


Record = Document | BadRecord


class UidSet:
  """Stores 63-bit uids in eight bytes each: the newest in a set, older ones in sorted arrays."""

  def __init__(self, *, max_newest: int = 50_000):
    self._max_newest = max_newest
    self._newest: set[int] = set()
    self._sorted: list[np.ndarray] = []

  def add(self, uids: Sequence[int]) -> list[bool]:
    """Adds uids; returns whether each was new."""
    wanted = np.asarray(uids, np.int64)
    seen = np.zeros(len(wanted), bool)
    for run in self._sorted:
      at = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
      seen |= run[at] == wanted
    new = []
    for uid, is_old in zip(uids, seen.tolist(), strict=True):
      new.append(not is_old and uid not in self._newest)
      if new[-1]:
        self._newest.add(uid)
    if len(self._newest) >= self._max_newest:
      run = np.sort(np.fromiter(self._newest, np.int64, len(self._newest)))
      self._newest.clear()
      while self._sorted and len(self._sorted[-1]) < 2 * len(run):  # few arrays, merged seldom
        run = np.sort(np.concatenate([self._sorted.pop(), run]), kind="stable")
      self._sorted.append(run)
    return new


class BadRecords:
  """Counts and names bad records, and ids that several documents have.

  Attributes:
    counts: Number of bad records of each kind.
    unreadable: Paths of the folders that cannot be read.
  """

  def __init__(self):
    self.counts: Counter = Counter()
    self.unreadable: list[str] = []
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

  def print(self) -> None:
    """Prints the report."""
    for line in self.report():
      print(line, flush=True)

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


def make_record(
  fields: Mapping[str, Any], *, default_id: str, name: str, outline: Sequence[Mark] = ()
) -> Record:
  """Validates one record.

  Args:
    fields: Content of the record; only `text` or `title` is required. The id may also be called
      `_id`, which is a field like others beside an `id`. What is empty counts as missing. Pairs of
      byte offsets in `spans` are salient spans.
    default_id: Id of a document without one.
    name: File and line, row or page of the record.
    outline: Of its text, which begins and ends without white space.

  Returns:
    The document, or a bad record if it has neither text nor title, or something that is not valid
    Unicode or that JSON cannot hold.
  """
  spans = fields.get("spans")
  try:
    fields = {str(key): value for key, value in fields.items() if not _is_empty(value)}
    own = ("id" if "id" in fields else "_id", "title", "text")
    id, title = (_name(fields, key) for key in own[:2])
    text = fields.get("text", "")
    if not isinstance(text, str):
      raise ValueError(f"`text` is {shown(text)}, not a string")
    if len(title) + len(text) > limits.RECORD:
      raise ValueError(limits.too_long())
    if reason := limits.too_many_fields(len(fields)):
      raise ValueError(reason)
    try:
      (id + title + text).encode()
    except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair, UTF-8 cannot
      raise ValueError("half of a surrogate pair, which is not Unicode") from error
    if not text.strip() and not title.strip():
      others = ", ".join(fields)[:_SHOWN]
      reason = f"no `text` among {others}" if others and not {*own} & {*fields} else ""
      return BadRecord(kind="records_without_text", name=name, reason=reason)
    # Offsets count the white space as well.
    spans = _pairs(spans) if text.strip() else None
    return Document(
      id=id if id.strip() else default_id,
      title=title,
      text=text.strip() if spans is None else text,
      spans=spans,
      fields=json_values({key: value for key, value in fields.items() if key not in own}),
      outline=tuple(outline),
    )
  except ValueError as error:
    return BadRecord(kind="broken_records", name=name, reason=str(error))


def _name(fields: Mapping[str, Any], key: str) -> str:
  """Returns an id or a title, which may be a number or a date."""
  value = fields.get(key, "")
  if isinstance(value, Mapping) and [*value] == ["$oid"]:  # as MongoDB exports its ids
    value = value["$oid"]
  if not isinstance(value, _NAMES):
    raise ValueError(f"`{key}` is {shown(value)}, not a string")
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
    raise ValueError(f"`spans` are {shown(spans)}, not pairs of byte offsets") from error


def json_values(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Returns fields as JSON holds them: dates as text, durations in seconds, arrays as lists.

  Scalars of NumPy and decimal numbers become numbers, and missing values in lists null.

  Raises:
    ValueError: If JSON cannot hold a value, or a text is no Unicode.
  """
  found = {}
  for name, value in fields.items():
    try:
      found[_text(name)] = _field(value)
    except UnicodeEncodeError as error:
      raise ValueError(
        f"field {shown(name)} has half of a surrogate pair, which is not Unicode"
      ) from error
    except (TypeError, ValueError, ArithmeticError) as error:
      raise ValueError(f"field {shown(name)} has {shown(value)}, which JSON cannot hold") from error
    except RecursionError as error:
      raise ValueError(f"field {shown(name)} is nested too deep") from error
  return found


def shown(value: Any) -> str:
  """Returns the beginning of a value, as messages have it."""
  try:
    return f"{value!r:.60}"
  except (ValueError, RecursionError):  # a number of thousands of digits
    return f"a {type(value).__name__} that is too large"


def written_number(written: str) -> int | float | None:
  """Returns the number of a text such as "12.5"; None if a number would be written otherwise."""
  if not (written[-1:].isdigit() and written[0] in "-0123456789"):
    return None
  try:
    found = json.loads(written)
  except ValueError:
    return None
  is_same = json.dumps(found) == written and (isinstance(found, float) or abs(found) <= _LARGEST)
  return found if is_same else None


def is_missing(value: Any) -> bool:
  """Returns whether a value is None, NaN, or NaT or NA of pandas."""
  if isinstance(value, decimal.Decimal):
    return value.is_nan()
  if isinstance(value, (numbers.Number, *_TIMES)):
    return bool(value != value)
  return value is None or type(value).__name__ == "NAType"


def _field(value: Any) -> Any:
  written = json.dumps(value, default=_simpler, ensure_ascii=False)
  return json.loads(_text(written), parse_constant=_number)


def _number(name: str) -> None:
  """Returns what NaN means in JSON; infinity has no meaning there."""
  if name != "NaN":
    raise ValueError(name)


def _text(value: str) -> str:
  value.encode()
  return str.__str__(value)


def _simpler(value: Any) -> Any:
  """Returns what is nearer to JSON than a value."""
  if is_missing(value):
    return None
  if isinstance(value, Mapping):
    return dict(value)
  if isinstance(value, decimal.Decimal):
    near = float(value)
    return near if decimal.Decimal(str(near)) == value else str(value)
  if isinstance(value, uuid.UUID):
    return str(value)
  if isinstance(value, (np.ndarray, np.generic)) and value.dtype.str.endswith("[ns]"):
    value = value.astype(f"{value.dtype.kind}8[us]")  # which do not become whole numbers
  if isinstance(value, np.datetime64) and isinstance(value.tolist(), int):
    return str(value)  # of a year that Python does not have
  if isinstance(value, memoryview):
    raise TypeError("bytes")
  if isinstance(value, numbers.Real) and not isinstance(value, np.timedelta64):
    return int(value) if isinstance(value, numbers.Integral) else float(value)
  for method in ("total_seconds", "isoformat", "tolist"):
    if hasattr(value, method):
      return getattr(value, method)()
  raise TypeError(type(value).__name__)
