"""The keywords of a job as command-line flags: their types, defaults and meanings.

A keyword is *plain* if its value can be written as one word: text, numbers, true or false, one of
several choices, `X | None`, and sequences of those. A keyword that is a dataclass has a flag for
each field, `--optimizer.learning_rate=1e-4`, or any unique ending of it, `--learning_rate=1e-4`.
The others are configured through gin.
"""

import argparse
import collections
import collections.abc
import copy
import dataclasses
import inspect
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import docstring_parser

REQUIRED = inspect.Parameter.empty

_SCALARS = {str: "TEXT", int: "INT", float: "FLOAT", bool: "true|false"}
_SEQUENCES = {tuple: tuple, list: list, collections.abc.Sequence: tuple}


@dataclasses.dataclass(frozen=True)
class Keyword:
  """One keyword of a job, or one field of a configuration.

  Attributes:
    name: Its name in the signature; `leaves` prefixes the path of a field.
    default: Its default; `REQUIRED` if there is none.
    meaning: Its description in the docstring.
    positional: Whether its value may be given without the flag's name.
    overridden: Whether the default comes from an instance rather than the signature.
  """

  name: str
  annotation: Any
  default: Any
  meaning: str
  positional: bool = False
  overridden: bool = False

  @property
  def plain(self) -> bool:
    return _is_plain(self.annotation)

  @property
  def config(self) -> type | None:
    """The dataclass that this keyword is, if any."""
    optional = _is_optional(self.annotation)
    annotation = _without_none(self.annotation) if optional else self.annotation
    is_config = isinstance(annotation, type) and dataclasses.is_dataclass(annotation)
    return annotation if is_config else None


def keywords(function: Callable[..., Any], *, instance: Any = None) -> tuple[Keyword, ...]:
  """Returns the keywords of a job, or the fields of a dataclass; an instance has the defaults."""
  meanings = {}
  for documented in reversed(inspect.getmro(function) if inspect.isclass(function) else [function]):
    documentation = docstring_parser.parse(
      inspect.getdoc(documented) or "", style=docstring_parser.DocstringStyle.GOOGLE
    )
    for p in documentation.params:
      meanings[p.arg_name] = " ".join((p.description or "").split())
  found = []
  for p in inspect.signature(function, eval_str=True).parameters.values():
    default = p.default if instance is None else getattr(instance, p.name)
    found.append(
      Keyword(
        name=p.name,
        annotation=p.annotation,
        default=default,
        meaning=meanings.get(p.name, ""),
        positional=p.kind is not p.KEYWORD_ONLY and not inspect.isclass(function),
        overridden=default is not p.default and default != p.default,
      )
    )
  return tuple(found)


def configs(function: Callable[..., Any]) -> tuple[type, ...]:
  """Returns the dataclasses among the keywords of a job, and among their fields."""
  found = [keyword.config for keyword in keywords(function) if keyword.config is not None]
  return tuple(dict.fromkeys(inner for config in found for inner in (config, *configs(config))))


def leaves(tree: Sequence[Keyword]) -> tuple[Keyword, ...]:
  """Returns the keywords with configurations replaced by their fields, under dotted names."""
  found = []
  for keyword in tree:
    if keyword.config is None:
      found.append(keyword)
      continue
    instance = keyword.default if dataclasses.is_dataclass(keyword.default) else None
    fields = keywords(keyword.config, instance=instance)
    found += leaves([dataclasses.replace(f, name=f"{keyword.name}.{f.name}") for f in fields])
  return tuple(found)


def spellings(names: Sequence[str]) -> dict[str, list[str]]:
  """Maps each ending of dotted names to the names it may mean; a whole name means only itself."""
  meant = collections.defaultdict(list)
  for name in names:
    parts = name.split(".")
    for first in range(1, len(parts)):
      meant[".".join(parts[first:])].append(name)
  return {**meant, **{name: [name] for name in names}}


class Parser(argparse.ArgumentParser):
  """An argument parser that raises `ValueError` and does not abbreviate flags."""

  def __init__(self, *, prog: str, description: str):
    super().__init__(
      prog=prog,
      description=description,
      usage=f"{prog} [--gin_file=FILE]... [--gin.NAME=VALUE]... [--KEYWORD=VALUE]...",
      allow_abbrev=False,
      argument_default=argparse.SUPPRESS,
      formatter_class=_Formatter,
    )

  def error(self, message: str) -> typing.NoReturn:
    # Names the shortest of several spellings.
    raise ValueError(re.sub(r"^argument (--[^/:]*)(/--[^:]*)?", r"\1", message))

  def flag_names(self) -> list[str]:
    """Returns every flag that this parser knows, including dashes."""
    return list(self._option_string_actions)

  def add_keywords(self, job_keywords: Sequence[Keyword]) -> None:
    """Adds a flag for every plain keyword and field, and help on how to set the others."""
    found = leaves(job_keywords)
    plain = [keyword for keyword in found if keyword.plain]
    meant = spellings([keyword.name for keyword in plain])
    groups = {"": self.add_argument_group("keywords of the job")}
    for keyword in plain:
      path = keyword.name.rpartition(".")[0]
      if path not in groups:
        groups[path] = self.add_argument_group(path)
      if keyword.positional:
        groups[path].add_argument(
          keyword.name, nargs="?", type=_converter(keyword.annotation), help=argparse.SUPPRESS
        )
      names = [ending for ending, whole in meant.items() if whole == [keyword.name]]
      groups[path].add_argument(
        *(f"--{n}" for n in sorted(names, key=len) if n == keyword.name or not self._knows(n)),
        dest=keyword.name,
        type=_converter(keyword.annotation),
        metavar=describe(keyword.annotation),
        help=_help(keyword).replace("%", "%%"),  # argparse formats it
        # A bare --flag means true.
        **({"nargs": "?", "const": True} if keyword.annotation is bool else {}),
      )
    for ending, names in meant.items():
      if len(names) > 1 and not self._knows(ending):
        self.add_argument(f"--{ending}", type=_refusal(names), help=argparse.SUPPRESS, nargs="?")
    others = [f"{k.name} ({describe(k.annotation)}): {_help(k)}" for k in found if not k.plain]
    if others:
      self.add_argument_group("keywords set through gin", "\n".join(others))

  def _knows(self, name: str) -> bool:
    return f"--{name}" in self._option_string_actions


def parse(parser: Parser, arguments: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
  """Parses `arguments`; returns the given values by name, and the unknown arguments.

  Raises:
    ValueError: If a value does not match the type of its flag.
  """
  known, unknown = parser.parse_known_args(arguments)
  return vars(known), unknown


def read(annotation: Any, text: str) -> Any:
  """Parses `text` as a value of type `annotation`.

  Raises:
    ValueError: If it is not such a value; the message names what was expected.
  """
  origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
  if _is_optional(annotation):
    return None if text.lower() == "none" else read(_without_none(annotation), text)
  if origin is typing.Literal:
    for choice in parts:
      if str(choice) == text:
        return choice
    raise ValueError(f"{text!r} is not one of {', '.join(map(str, parts))}")
  if origin in _SEQUENCES:
    items = text.split(",") if text else []
    if origin is tuple and Ellipsis not in parts:
      if len(items) != len(parts):
        raise ValueError(f"{text!r} has {len(items)} values instead of {len(parts)}")
      return tuple(read(part, item) for part, item in zip(parts, items, strict=True))
    return _SEQUENCES[origin](read(parts[0], item) for item in items)
  if annotation is bool:
    if text.lower() not in ("true", "false"):
      raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
  try:
    return annotation(text)
  except ValueError:
    raise ValueError(f"{text!r} is not a valid {describe(annotation)}") from None


def describe(annotation: Any) -> str:
  """Returns a type as shown in the help, such as `INT,...` or `TEXT or none`."""
  origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
  if annotation in _SCALARS:
    return _SCALARS[annotation]
  if _is_optional(annotation) and _is_plain(annotation):
    return f"{describe(_without_none(annotation))} or none"
  if origin is typing.Literal:
    return "|".join(map(str, parts))
  if origin in _SEQUENCES and _is_plain(annotation):
    return ",".join("..." if p is Ellipsis else describe(p) for p in parts) + (
      ",..." if origin is not tuple else ""
    )
  return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _is_optional(annotation: Any) -> bool:
  parts = typing.get_args(annotation)
  is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
  return is_union and len(parts) == 2 and type(None) in parts


def _without_none(annotation: Any) -> Any:
  return next(part for part in typing.get_args(annotation) if part is not type(None))


def _is_plain(annotation: Any) -> bool:
  origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
  if origin is typing.Literal or annotation in (str, int, float, bool):
    return True
  if _is_optional(annotation):
    return _is_plain(_without_none(annotation))
  return origin in _SEQUENCES and all(
    p is Ellipsis or p in _SCALARS or typing.get_origin(p) is typing.Literal for p in parts
  )


def _converter(annotation: Any) -> Callable[[str], Any]:
  def convert(text: str) -> Any:
    try:
      return read(annotation, text)
    except ValueError as error:
      # argparse shows the message of only this type of error.
      raise argparse.ArgumentTypeError(str(error)) from None

  return convert


def _refusal(names: Sequence[str]) -> Callable[[str], Any]:
  def refuse(text: str) -> Any:
    raise argparse.ArgumentTypeError(
      f"several flags end like this; write {' or '.join(f'--{name}={text}' for name in names)}"
    )

  return refuse


def _help(keyword: Keyword) -> str:
  if keyword.default is REQUIRED:
    default = "required; may stand without its name" if keyword.positional else "required"
  else:
    default = f"default: {textwrap.shorten(_shown(keyword.default), 60, placeholder='...')}"
  return f"{keyword.meaning} ({default})".strip()


def _shown(value: Any) -> str:
  if isinstance(value, str):
    return value or '""'
  if isinstance(value, (tuple, list)):
    return ",".join(map(_shown, value)) or "empty"
  return str(value).lower() if value is None or isinstance(value, bool) else str(value)


class _Formatter(argparse.RawDescriptionHelpFormatter):
  """Shows the shortest spelling of each flag; the title of its group gives its path."""

  def _format_action_invocation(self, action: argparse.Action) -> str:
    action = copy.copy(action)
    action.option_strings = action.option_strings[:1]
    return super()._format_action_invocation(action)

  def __init__(self, prog: str):
    width = min(shutil.get_terminal_size().columns, 100)
    super().__init__(prog, max_help_position=32, width=width)
