"""Columns of documents: their texts, and extra fields with the filters that select by them."""

import dataclasses
import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from realm_jax.corpus.documents import json_values

Where = Mapping[str, Any]
_MISSING = _UNKNOWN = -1
_CONDITIONS_KEPT = 16
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
    return str(content[ends[row] : ends[row + 1]], "utf-8")

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


@dataclasses.dataclass(frozen=True, eq=False)
class Fields:
  """The fields of D documents.

  Attributes:
    values: The distinct values of each field, which JSON can hold.
    codes: For each field, int32 `[D]`, the value of each document in `values`, or -1.
  """

  values: dict[str, list[Any]]
  codes: dict[str, np.ndarray]

  @classmethod
  def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Fields":
    """Returns the columns of documents; their values are those that JSON has."""
    places: dict[str, dict[str, int]] = {}
    codes: dict[str, np.ndarray] = {}
    for row, fields in enumerate(rows):
      for name, value in fields.items():
        if name not in codes:
          codes[name], places[name] = np.full(len(rows), _MISSING, np.int32), {}
        key = json.dumps(value, sort_keys=True)
        codes[name][row] = places[name].setdefault(key, len(places[name]))
    return cls({name: [*map(json.loads, keys)] for name, keys in places.items()}, codes)

  @classmethod
  def join(cls, parts: Sequence["Fields"], sizes: Sequence[int]) -> "Fields":
    """Returns the fields of the documents of all parts, which have these numbers of documents."""
    values, codes = {}, {}
    for name in dict.fromkeys(name for part in parts for name in part.values):
      places: dict[str, int] = {}
      columns = []
      for part, size in zip(parts, sizes, strict=True):
        used = np.unique(part.codes.get(name, np.zeros(0, np.int32)))
        new = np.full(len(part.values.get(name, ())) + 1, _MISSING, np.int32)
        for code in used[used >= 0].tolist():
          new[code] = places.setdefault(json.dumps(part.values[name][code]), len(places))
        columns.append(new[part.codes.get(name, np.full(size, _MISSING))])
      if places:
        values[name], codes[name] = [*map(json.loads, places)], np.concatenate(columns)
    return cls(values, codes)

  def kept(self, mask: np.ndarray) -> "Fields":
    """Returns the fields of the documents where the mask is true."""
    return Fields(self.values, {name: codes[mask] for name, codes in self.codes.items()})

  def examples(self, mask: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Yields each field of the documents where the mask is true, with a value that one has."""
    for name, codes in self.codes.items():
      code = int(codes.max(initial=_MISSING, where=mask))
      if code != _MISSING:
        yield name, self.values[name][code]

  def row(self, document: int) -> dict[str, Any]:
    """Returns the fields of a document by name."""
    found = {name: int(codes[document]) for name, codes in self.codes.items()}
    return {name: self.values[name][code] for name, code in found.items() if code >= 0}


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
    found = json.loads(text)
  except (ValueError, RecursionError):
    found = None
  if not isinstance(found, dict):
    raise ValueError(f"""where={text:.60} is no JSON object such as {{"year": 1958}}""")
  return found


def _predicate(name: str, condition: Any) -> Callable[[Any], bool]:
  """Returns a function of a field's value, which is None where there is none."""
  if not isinstance(condition, Mapping):
    return _is_one_of(name, condition)
  if condition.keys() - _OPERATORS or not condition:
    raise ValueError(f"where: {name} has {condition!r:.60}; conditions are {', '.join(_OPERATORS)}")
  bounds = json_values({side: bound for side, bound in condition.items() if side in _BOUNDS})
  excluded = [_is_one_of(name, condition[n]) for n in _EXCLUDING if n in condition]
  exists = condition.get("exists")
  if "exists" in condition and not isinstance(exists, bool):
    raise ValueError(f"where: {name} has exists={exists!r:.60}; it is true or false")

  def is_within(value: Any) -> bool:
    return all(_compares(value, b) and _BOUNDS[side](value, b) for side, b in bounds.items())

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
  try:
    # Documents do not keep empty texts, which count as missing.
    wanted = {(isinstance(one, bool), None if one == "" else one) for one in given}
  except TypeError as error:
    raise ValueError(f"where: {name} has {condition!r:.60}; compare with plain values") from error
  return lambda value: any(
    not isinstance(one, dict) and (isinstance(one, bool), one) in wanted for one in _values(value)
  )


def _values(value: Any) -> list[Any]:
  """Returns the values of a list, also of lists in it; None alone stands for no value."""
  if not isinstance(value, list):
    return [value]
  return [one for part in value for one in _values(part) if one is not None] or [None]


def _compares(value: Any, bound: Any) -> bool:
  numbers = (int, float)
  return (
    isinstance(value, str)
    and isinstance(bound, str)
    or (isinstance(value, numbers) and isinstance(bound, numbers))
  )
