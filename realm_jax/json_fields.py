"""Restores dataclasses, and the values nested in them, from JSON."""

import dataclasses
import types
import typing
from typing import Any


def restored(kind: Any, content: Any) -> Any:
  """Returns a value of a type, such as a dataclass, whose `dataclasses.asdict` went through JSON.

  JSON has lists for tuples, strings for the keys of mappings, and mappings for dataclasses.

  Raises:
    KeyError, TypeError, ValueError, AttributeError: If the content is not that of such a value.
  """
  parts = typing.get_args(kind)
  if isinstance(kind, types.UnionType) and len(parts) == 2 and parts[1] is types.NoneType:
    return None if content is None else restored(parts[0], content)
  if isinstance(kind, type) and dataclasses.is_dataclass(kind):
    fields = typing.get_type_hints(kind)
    return kind(**{name: restored(fields[name], value) for name, value in content.items()})
  if typing.get_origin(kind) is tuple:
    return tuple(restored(parts[0], value) for value in content)
  if typing.get_origin(kind) is dict:
    return {restored(parts[0], k): restored(parts[1], v) for k, v in content.items()}
  return int(content) if kind is int else content
