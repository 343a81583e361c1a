"""Columns of documents: their texts, and extra fields with the filters that select by them."""

import dataclasses
import datetime
import functools
import json
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from realm_jax.corpus.documents import json_values
from realm_jax.foundations import text_files

Where = Mapping[str, Any]
_MISSING = _UNKNOWN = -1
_CONDITIONS_KEPT = 4  # of a field
_LARGEST = 1e300  # number to tell what is newer; integers may be larger than floats
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
  "gt": operator.gt,
  "gte": operator.ge,
  "lt": operator.lt,
  "lte": operator.le,
}
_EXCLUDING = ("ne", "nin")
_OPERATORS = (*_BOUNDS, *_EXCLUDING, "exists")


@dataclasses.dataclass(frozen=True, eq=False)
class Strings(Sequence[str]):
  """UTF-8 strings, one after the other.

  Attributes:
    content: uint8, all strings joined.
    ends: int64, where each string ends, after a 0.
  """

  content: np.ndarray
  ends: np.ndarray

  @classmethod
  def of(cls, strings: Iterable[str]) -> "Strings":
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

  @classmethod
  def join(cls, parts: Sequence["Strings"]) -> "Strings":
    """Returns the strings of all parts."""
    lengths = np.concatenate([np.diff(part.ends) for part in parts])
    content = np.concatenate([part.content for part in parts])
    return cls(content, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

  def __len__(self) -> int:
    return len(self.ends) - 1

  @functools.cached_property
  def _views(self) -> tuple[memoryview, memoryview]:
    return self.content.data, self.ends.data  # read several times as fast

  def __getitem__(self, row):
    content, ends = self._views
    return str(content[ends[row] : ends[row + 1]], "utf-8", "replace")

  def joined(self, first: int, limit: int) -> str:
    """Returns some neighbours as one string."""
    content, ends = self._views
    return str(content[ends[first] : ends[limit]], "utf-8", "replace")

  def kept(self, mask: np.ndarray) -> "Strings":
    """Returns the strings where the mask is true."""
    if mask.all():
      return self
    # Runs of neighbours are copied together.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    runs = [self.content[self.ends[a] : self.ends[b]] for a, b in edges.reshape(-1, 2)]
    lengths = np.diff(self.ends)[mask]
    content = np.concatenate(runs) if runs else self.content[:0]
    return Strings(content, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def numbered(names: Iterable[str]) -> dict[str, int]:
  """Returns the number of each name."""
  return {name: number for number, name in enumerate(dict.fromkeys(names))}


def renumbered(parts: Sequence[tuple[Strings, np.ndarray]]) -> tuple[Strings, np.ndarray]:
  """Returns the names that are used in some parts, each once, and their numbers in all parts."""
  numbers: dict[str, int] = {}
  codes = [np.zeros(0, np.int32)]
  for names, numbers_N in parts:
    used, inverse = np.unique(numbers_N, return_inverse=True)
    new = [numbers.setdefault(names[row], len(numbers)) for row in used.tolist()]
    codes.append(np.array(new, np.int32)[inverse])
  return Strings.of(numbers), np.concatenate(codes)


@dataclasses.dataclass(frozen=True, eq=False)
class Fields:
  """The fields of D documents, which have P values in all.

  Attributes:
    values: The distinct values of each field, which JSON can hold.
    ends: int64 `[D + 1]`, where the values of each document end, after a 0.
    names: int32 `[P]`, the place of a field in `values`.
    codes: int32 `[P]`, the place of its value among those of the field.
  """

  values: dict[str, list[Any]]
  ends: np.ndarray
  names: np.ndarray
  codes: np.ndarray

  @classmethod
  def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Fields":
    """Returns the columns of documents; their values are those that JSON has."""
    known: dict[str, tuple[int, dict[str, int]]] = {}
    names, codes = [], []
    for fields in rows:
      for name, value in fields.items():
        number, places = known.setdefault(name, (len(known), {}))
        names.append(number)
        codes.append(places.setdefault(json.dumps(value, sort_keys=True), len(places)))
    return cls(
      {name: [*map(json.loads, places)] for name, (_, places) in known.items()},
      np.cumsum([0, *map(len, rows)], dtype=np.int64),
      np.array(names, np.int32),
      np.array(codes, np.int32),
    )

  @classmethod
  def join(cls, parts: Sequence["Fields"]) -> "Fields":
    """Returns the fields of the documents of all parts, without values that none has."""
    known: dict[str, tuple[int, dict[str, int]]] = {}
    names, codes = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for part in parts:
      listed = [*part.values.items()]
      keys, pairs = np.unique(part.names.astype(np.int64) << 32 | part.codes, return_inverse=True)
      new_names, new_codes = np.zeros((2, len(keys)), np.int32)
      for place, key in enumerate(keys.tolist()):
        (name, values), code = listed[key >> 32], key & 0xFFFFFFFF
        new_names[place], places = known.setdefault(name, (len(known), {}))
        new_codes[place] = places.setdefault(json.dumps(values[code]), len(places))
      names.append(new_names[pairs])
      codes.append(new_codes[pairs])
    counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.ends) for part in parts)])
    return cls(
      {name: [*map(json.loads, places)] for name, (_, places) in known.items()},
      np.cumsum(counts, dtype=np.int64),
      np.concatenate(names),
      np.concatenate(codes),
    )

  def kept(self, mask: np.ndarray) -> "Fields":
    """Returns the fields of the documents where the mask is true."""
    counts = np.diff(self.ends)
    pairs = np.repeat(mask, counts)
    ends = np.cumsum(np.append(0, counts[mask]), dtype=np.int64)
    return Fields(self.values, ends, self.names[pairs], self.codes[pairs])

  def examples(self, mask: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Yields each field of the documents where the mask is true, with a value that one has."""
    last = np.full(len(self.values), _MISSING, np.int32)
    pairs = np.repeat(mask, np.diff(self.ends))
    last[self.names[pairs]] = self.codes[pairs]
    for (name, values), code in zip(self.values.items(), last.tolist(), strict=True):
      if code != _MISSING:
        yield name, values[code]

  def row(self, document: int) -> dict[str, Any]:
    """Returns the fields of a document by name."""
    ends, names, codes, values = self._views
    own = range(ends[document], ends[document + 1])
    return {name: of[codes[at]] for at in own for name, of in (values[names[at]],)}

  @functools.cached_property
  def _views(self) -> tuple[memoryview, memoryview, memoryview, list[tuple[str, list]]]:
    return self.ends.data, self.names.data, self.codes.data, [*self.values.items()]

  def column(self, name: str) -> np.ndarray:
    """Returns the code of each document's value of a field, int32 `[D]`, or -1."""
    codes_D = np.full(len(self.ends) - 1, _MISSING, np.int32)
    if name in self.values:
      pairs = np.flatnonzero(self.names == self._listed.index(name))
      codes_D[np.searchsorted(self.ends, pairs, side="right") - 1] = self.codes[pairs]
    return codes_D

  @functools.cached_property
  def _listed(self) -> list[str]:
    return [*self.values]


class Column:
  """The values of a field, of passages; conditions are checked for the values that are met.

  Args:
    values: Distinct values; some may be equal.
    codes_N: The value of each passage in `values`, or -1.
  """

  def __init__(self, values: Sequence[Any], codes_N: np.ndarray):
    self._values, self._codes_N = [*values, None], codes_N
    self._recent: dict[str, Callable[[np.ndarray], np.ndarray]] = {}  # conditions

  def condition(self, name: str, condition: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that tells which of some passages `[R]` satisfy a condition."""
    if (key := repr(condition)) in self._recent:
      return self._recent[key]
    satisfies = _predicate(name, condition)
    known = np.full(len(self._values), _UNKNOWN, np.int8)

    def matching(rows: np.ndarray) -> np.ndarray:
      codes = self._codes_N.take(rows)
      found = known.take(codes)
      if np.count_nonzero(new := found == _UNKNOWN):
        for code in np.unique(codes[new]).tolist():
          known[code] = satisfies(self._values[code])
        found = known.take(codes)
      return found == 1

    if len(self._recent) >= _CONDITIONS_KEPT:
      self._recent.clear()
    self._recent[key] = matching
    return matching


def selects_missing(name: str, condition: Any) -> bool:
  """Returns whether documents without a field satisfy a condition on it."""
  return _predicate(name, condition)(None)


def conditions(text: str) -> Where:
  """Returns the conditions that a text has as JSON."""
  try:
    found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=text_files.once)
  except (ValueError, RecursionError):
    found = None
  if not isinstance(found, dict):
    raise ValueError(f"""where={text:.60} is no JSON object such as {{"year": 1958}}""")
  return found


def _refuse_constant(name: str) -> None:
  raise ValueError(f"{name} is no JSON")  # although Python reads NaN and Infinity


def _predicate(name: str, condition: Any) -> Callable[[Any], bool]:
  """Returns a function of a field's value, which is None where there is none."""
  if not isinstance(condition, Mapping):
    return _is_one_of(name, condition)
  if condition.keys() - _OPERATORS or not condition:
    raise ValueError(f"where: {name} has {condition!r:.60}; conditions are {', '.join(_OPERATORS)}")
  given = json_values({side: bound for side, bound in condition.items() if side in _BOUNDS})
  bounds = {side: _Comparable.of(bound) for side, bound in given.items()}
  if nothing := [side for side, bound in bounds.items() if not bound.kind]:
    raise ValueError(
      f"where: {name} has {nothing[0]}={given[nothing[0]]!r:.60}, which nothing compares with; "
      "give a number, a text or a time, or leave it out"
    )
  excluded = [_is_one_of(name, condition[n]) for n in _EXCLUDING if n in condition]
  exists = condition.get("exists")
  if "exists" in condition and not isinstance(exists, bool):
    raise ValueError(f"where: {name} has exists={exists!r:.60}; it is true or false")

  def is_within(value: Any) -> bool:
    own = _Comparable.of(value)
    return all(own.satisfies(_BOUNDS[side], bound) for side, bound in bounds.items())

  def satisfies(value: Any) -> bool:
    values = _values(value)
    return (
      (not bounds or any(map(is_within, values)))
      and not any(is_excluded(value) for is_excluded in excluded)
      and exists in (None, values != [None])
    )

  return satisfies


def _is_one_of(name: str, condition: Any) -> Callable[[Any], bool]:
  several = isinstance(condition, (list, tuple, set, frozenset, range))
  given = json_values({name: [*condition] if several else [condition]})[name]
  if any(isinstance(one, (dict, list)) for one in given):
    raise ValueError(f"where: {name} has {condition!r:.60}; compare with plain values")
  # Documents do not keep empty texts, which count as missing.
  wanted = {_Comparable.of(None if one == "" else one) for one in given}
  return lambda value: any(_Comparable.of(one) in wanted for one in _values(value))


def magnitude(value: Any) -> float | None:
  """Returns a number, or the days of a time since 1970, the largest of a list; None for others.

  A time to come is now, so that one wrong date does not make all others old.
  """
  if isinstance(value, list):
    return max((m for m in map(magnitude, value) if m is not None), default=None)
  of = _Comparable.of(value)
  if of.kind == "time":
    moment, fraction = of.value
    return min(moment.timestamp() + float(f"0.{fraction or 0}"), time.time()) / 86_400
  return float(max(-_LARGEST, min(of.value, _LARGEST))) if of.kind == "number" else None


def _values(value: Any) -> list[Any]:
  """Returns the values of a list, also of lists in it; None alone stands for no value."""
  if not isinstance(value, list):
    return [value]
  return [one for part in value for one in _values(part) if one is not None] or [None]


@dataclasses.dataclass(frozen=True)
class _Comparable:
  """A value as it is compared: numbers with numbers, which true is none of, and times as moments.

  Attributes:
    kind: "number", "boolean", "time", "text", or "" for what compares with nothing.
    value: What is compared; two ways to write a moment have the same.
    text: A time as it is written, to be compared with a text that is none.
  """

  kind: str
  value: Any
  text: str = dataclasses.field(default="", compare=False)

  @classmethod
  def of(cls, value: Any) -> "_Comparable":
    if isinstance(value, bool):
      return cls("boolean", value)
    if isinstance(value, (int, float)):
      return cls("number", value)
    if isinstance(value, str):
      moment = _moment(value)
      return cls("text", value, value) if moment is None else cls("time", moment, value)
    return cls("", None if value is None else id(value))

  def satisfies(self, compare: Callable[[Any, Any], bool], bound: "_Comparable") -> bool:
    if {self.kind, bound.kind} == {"text", "time"}:
      return compare(self.text, bound.text)
    return self.kind == bound.kind != "" and compare(self.value, bound.value)


def _moment(text: str) -> tuple[datetime.datetime, str] | None:
  """Returns the second in UTC that a date or time of ISO 8601 names and its fraction, or None.

  A time without a zone is UTC, a date its first moment.
  """
  if not (found := _TIME.fullmatch(text)):
    return None
  date, time, fraction, zone = found.groups()
  zone = zone.upper() if zone else "Z"
  try:
    moment = datetime.datetime.fromisoformat(f"{date}T{time or '00'}{zone.replace('UTC', 'Z')}")
    return moment.astimezone(datetime.UTC), (fraction or "").rstrip("0")
  except (ValueError, OverflowError):  # no such day, or one before the first year
    return None


_TIME = re.compile(
  r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d(?::?\d\d){0,2})(?:[.,](\d{1,18}))?"
  r" ?(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?)?",
  re.ASCII,
)
