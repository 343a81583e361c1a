"""What a setting may be, by its type: one of several strings, or a number within bounds."""

import dataclasses
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
  """The finite numbers from `least`, or above `above`, to `most`, or below `below`."""

  least: float = -math.inf
  above: float = -math.inf
  most: float = math.inf
  below: float = math.inf

  def hold(self, value: float) -> bool:
    is_within = self.least <= value <= self.most and self.above < value < self.below
    return _is_finite(value) and is_within

  def __str__(self) -> str:
    words = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
    return " and ".join(f"{word} {limit}" for word, limit in words.items() if abs(limit) < math.inf)


@dataclasses.dataclass(frozen=True)
class Written:
  """How a text is read as a value that is no word: `Annotated[Mapping, Written("JSON", read)]`."""

  metavar: str
  read: Callable[[str], Any]


Count = Annotated[int, Bounds(least=1)]
CountOrZero = Annotated[int, Bounds(least=0)]
Seed = Annotated[int, Bounds(least=0, below=2**63)]
Positive = Annotated[float, Bounds(above=0)]
PositiveOrZero = Annotated[float, Bounds(least=0)]
Share = Annotated[float, Bounds(least=0, most=1)]
Rate = Annotated[float, Bounds(least=0, below=1)]
_SCALARS = {bool: bool, int: numbers.Integral, float: numbers.Real, str: (str, os.PathLike)}
IMPORTED = "a setting that models from elsewhere bring; gin sets it, but no flag"
OBJECT = "an object, which programs alone give"
WHOLE = "a text that is one item of a sequence, with its commas"
Words = Annotated[str, "a text that names no file"]
# Wordpieces of a text between [CLS] and [SEP], and of a passage, with a title's [SEP].
TextLength = Annotated[int, Bounds(least=3)]
PassageLength = Annotated[int, Bounds(least=4)]
Port = Annotated[int, Bounds(least=0, most=65_535)]


class Checked:
  """A dataclass whose fields are what their types say; `__post_init__` checks them."""

  def __post_init__(self) -> None:
    for name, kind, default in _checks(type(self)):
      if (value := getattr(self, name)) is not default:
        check(kind, **{name: value})


@functools.cache
def _checks(config: type) -> list[tuple[str, Any, Any]]:
  """Returns the names and types of fields, with defaults that are what their types say."""
  kinds, found = _kinds(config), []
  for field in dataclasses.fields(config):
    is_right = not _fault(kind := kinds[field.name], field.default)
    found.append((field.name, kind, field.default if is_right else dataclasses.MISSING))
  return found


@functools.cache
def _kinds(config: type) -> dict[str, Any]:
  hints = typing.get_type_hints(config, include_extras=True)
  return {field.name: hints[field.name] for field in dataclasses.fields(config)}


@functools.cache
def meanings(docstring: str) -> dict[str, str]:
  """Returns what each keyword of a function, or field of a class, means by its docstring."""
  import docstring_parser  # only help needs it

  parsed = docstring_parser.parse(docstring, style=docstring_parser.DocstringStyle.GOOGLE)
  return {p.arg_name: " ".join((p.description or "").split()) for p in parsed.params}


def imported(config: type) -> set[str]:
  """Returns the names of a dataclass's settings that models from elsewhere bring."""
  return {name for name, kind in _kinds(config).items() if IMPORTED in typing.get_args(kind)}


def check(kind: Any, /, **settings: Any) -> None:
  """Checks that settings are what their type says, so far as it has choices or bounds."""
  for name, value in settings.items():
    if fault := _fault(kind, value):
      raise ValueError(f"{name}={_as_text(value)}; {fault}")


def _fault(kind: Any, value: Any) -> str:
  """Returns what to give instead of a value; empty if it is of its type."""
  origin, parts = typing.get_origin(kind), typing.get_args(kind)
  if origin is Literal:
    return "" if value in parts else f"choose one of {', '.join(map(str, parts))}"
  if origin is Annotated and isinstance(bounds := parts[1], Bounds):
    number: Any = numbers.Integral if parts[0] is int else numbers.Real
    is_number = isinstance(value, number) and not isinstance(value, bool)
    if is_number and bounds.hold(value):
      return ""
    is_too_large = is_number and value > 0 and not _is_finite(value)
    what = "" if is_number else f"a number ({parts[0].__name__}), "
    return f"give {what}{'a smaller one, ' * is_too_large}{bounds}"
  if origin is Annotated:
    return _fault(parts[0], value)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in parts:
      return ""
    faults = [_fault(part, value) for part in parts if part is not type(None)]
    return "" if "" in faults else faults[0]
  if kind in _SCALARS and not (
    isinstance(value, _SCALARS[kind]) and (kind is bool) == isinstance(value, bool)
  ):
    return f"give a {kind.__name__}"
  is_object = dataclasses.is_dataclass(kind) or inspect.isabstract(kind)
  if isinstance(kind, type) and is_object and not isinstance(value, kind):
    return f"give an object of the class {kind.__name__}"
  if origin is Callable and not callable(value):
    return "give a class or a function"
  if origin in (tuple, list, Sequence):
    if isinstance(value, str) or not isinstance(value, Sequence):
      return "give several, in brackets"
    is_fixed = origin is tuple and Ellipsis not in parts
    if is_fixed and len(value) != len(parts):
      return f"give {len(parts)} values, in brackets"
    each = parts if is_fixed else parts[:1] * len(value)
    return next(filter(None, map(_fault, each, value)), "")
  return ""


def _is_finite(value: float) -> bool:
  try:
    return math.isfinite(value)
  except OverflowError:  # an integer that no float can hold
    return False


def _as_text(value: Any) -> str:
  if isinstance(value, (tuple, list)):
    return ",".join(map(_as_text, value)) or str(value)
  return repr(value) if isinstance(value, str) else str(value)
