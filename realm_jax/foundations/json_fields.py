"""Dataclasses, and the values nested in them, to JSON and back."""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

_CLASS = "class"
# What reading something else raises than what was written.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
  """Names a file or directory in what reading it raises if it has something else."""
  try:
    yield
  except WRONG as error:
    if isinstance(error, ValueError) and os.fspath(path) in str(error):
      raise
    raise ValueError(f"{os.fspath(path)} cannot be read: {reason(error)}") from error


def reason(error: Exception) -> str:
  """Returns what is wrong with something that was read, in words."""
  found = str(error)
  if isinstance(error, KeyError):
    found = f"it lacks {error}"
  elif not isinstance(error, (ValueError, OSError)):
    found = f"something is missing or of another type than expected ({error})"
  return found[:500]


def as_json(value: Any) -> Any:
  """Returns a dataclass as `dataclasses.asdict` does; what implements an abstract one is named."""
  if isinstance(value, (tuple, list)):
    return [as_json(each) for each in value]
  if not dataclasses.is_dataclass(value):
    return value
  found = {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
  if any(map(inspect.isabstract, type(value).__mro__)):
    found[_CLASS] = f"{type(value).__module__}.{type(value).__qualname__}"
  return found


def restored(kind: Any, content: Any) -> Any:
  """Returns a value of a type, such as a dataclass, that `as_json` gave, after JSON.

  JSON has lists for tuples, strings for the keys of mappings, and mappings for dataclasses.

  Raises:
    KeyError, TypeError, ValueError, AttributeError: If the content is not that of such a value.
  """
  return _restorer(kind)(content)


@functools.cache  # a commit has hundreds of values of few types
def _restorer(kind: Any) -> Callable[[Any], Any]:
  """Returns a function of what JSON has, for a type."""
  parts = typing.get_args(kind)
  if isinstance(kind, types.UnionType) and len(parts) == 2 and parts[1] is types.NoneType:
    return lambda content: None if content is None else restored(parts[0], content)
  if inspect.isabstract(kind):
    return lambda content: restored(
      _implementation(kind, content.get(_CLASS, getattr(kind, "unnamed", ""))),
      {name: value for name, value in content.items() if name != _CLASS},
    )
  if isinstance(kind, type) and dataclasses.is_dataclass(kind):
    of_fields = {name: _restorer(each) for name, each in typing.get_type_hints(kind).items()}
    return lambda content: kind(**{n: of_fields[n](value) for n, value in content.items()})
  if isinstance(kind, type) and hasattr(kind, "_fields"):  # a NamedTuple
    of_items = [_restorer(each) for each in typing.get_type_hints(kind).values()]
    return lambda content: kind(*(of(each) for of, each in zip(of_items, content, strict=True)))
  if typing.get_origin(kind) is tuple:
    of_item = _restorer(parts[0])
    return lambda content: tuple(map(of_item, content))
  if typing.get_origin(kind) is dict:
    key, value = map(_restorer, parts)
    return lambda content: {key(k): value(v) for k, v in content.items()}
  if typing.get_origin(kind) is typing.Literal:
    return functools.partial(_one_of, parts)
  return _PLAIN.get(kind, lambda content: content)


def _one_of(values: tuple[Any, ...], content: Any) -> Any:
  if content not in values:
    raise ValueError(f"{content!r:.60} is none of {', '.join(map(repr, values))}")
  return content


def _checked(*kinds: type) -> Callable[[Any], Any]:
  def checked(content: Any) -> Any:
    if type(content) not in kinds:
      raise TypeError(f"{content!r:.60} is no {kinds[0].__name__}")
    return content

  return checked


_integer = _checked(int, str)
_PLAIN: dict[Any, Callable[[Any], Any]] = {
  int: lambda content: int(_integer(content)),  # keys of mappings are strings
  float: _checked(float, int),
  str: _checked(str),
  bool: _checked(bool),
  list: _checked(list),
}


def _implementation(kind: Any, path: str) -> type:
  """Returns the class of a path, of a module that runs already or belongs to the package.

  A file thus never decides which other modules run.
  """
  module, _, name = path.rpartition(".")
  if module.partition(".")[0] == __name__.partition(".")[0]:
    with contextlib.suppress(ModuleNotFoundError):
      importlib.import_module(module)
  if module not in sys.modules:
    raise ValueError(
      f"the {kind.__name__} of this checkpoint is {path}: if you trust {module}, import it first, "
      "in Python or in a --gin_file"
    )
  found = getattr(sys.modules[module], name, None)
  if not (isinstance(found, type) and issubclass(found, kind)):
    raise ValueError(f"{path} is no {kind.__name__}; this checkpoint names it as one")
  return found
