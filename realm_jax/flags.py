"""The keywords of a job as command-line flags: their types, defaults and meanings.

A keyword is *plain* when its value can be written in one word: text, numbers, true or false, one of
several choices, `X | None`, and sequences of those. The others (dataclasses, functions) are
configured through gin.
"""

import argparse
import collections.abc
import dataclasses
import inspect
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
  """One keyword of a job.

  Attributes:
    name: as in the signature of the job.
    annotation: its type.
    default: `REQUIRED` if the signature has none.
    meaning: what the `Args` section of the job's docstring says of it.
    positional: whether its value may stand alone, without the flag's name.
  """

  name: str
  annotation: Any
  default: Any
  meaning: str
  positional: bool = False

  @property
  def plain(self) -> bool:
    return _is_plain(self.annotation)


def keywords(job: Callable[..., Any]) -> tuple[Keyword, ...]:
  """Returns the keywords of `job` in the order of its signature."""
  documentation = docstring_parser.parse(
    inspect.getdoc(job) or "", style=docstring_parser.DocstringStyle.GOOGLE
  )
  meanings = {p.arg_name: " ".join((p.description or "").split()) for p in documentation.params}
  return tuple(
    Keyword(p.name, p.annotation, p.default, meanings.get(p.name, ""), p.kind is not p.KEYWORD_ONLY)
    for p in inspect.signature(job, eval_str=True).parameters.values()
  )


class Parser(argparse.ArgumentParser):
  """An argument parser whose complaints are `ValueError`s and whose flags are never abbreviated."""

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
    raise ValueError(message.removeprefix("argument "))

  def flag_names(self) -> list[str]:
    """Returns every flag that this parser knows, dashes included."""
    return list(self._option_string_actions)

  def add_keywords(self, job_keywords: Sequence[Keyword]) -> None:
    """Makes every plain keyword a flag and tells of the others how to set them."""
    group = self.add_argument_group("keywords of the job")
    for keyword in job_keywords:
      if keyword.positional:
        group.add_argument(
          keyword.name, nargs="?", type=_converter(keyword.annotation), help=argparse.SUPPRESS
        )
      if keyword.plain:
        group.add_argument(
          f"--{keyword.name}",
          type=_converter(keyword.annotation),
          metavar=describe(keyword.annotation),
          help=_help(keyword).replace("%", "%%"),  # argparse formats it
          # A bare --flag means true.
          **({"nargs": "?", "const": True} if keyword.annotation is bool else {}),
        )
    others = [
      f"{k.name} ({describe(k.annotation)}): {_help(k)}" for k in job_keywords if not k.plain
    ]
    if others:
      self.add_argument_group("keywords set through gin", "\n".join(others))


def parse(parser: Parser, arguments: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
  """Reads `arguments`; returns the values given, by name, and the arguments nobody knows.

  Raises:
    ValueError: a value does not fit the type of its flag.
  """
  known, unknown = parser.parse_known_args(arguments)
  return vars(known), unknown


def read(annotation: Any, text: str) -> Any:
  """Reads `text` as a value of type `annotation`.

  Raises:
    ValueError: the text is no such value; the message names what was expected.
  """
  origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
  if _is_optional(annotation):
    return None if text.lower() == "none" else read(_without_none(annotation), text)
  if origin is typing.Literal:
    for choice in parts:
      if str(choice) == text:
        return choice
    raise ValueError(f"{text!r} is none of {', '.join(map(str, parts))}")
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
    raise ValueError(f"{text!r} is no {describe(annotation)}") from None


def describe(annotation: Any) -> str:
  """Returns the type `annotation` as the help shows it, such as `INT,...` or `TEXT or none`."""
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
  return origin in _SEQUENCES and all(p is Ellipsis or p in _SCALARS for p in parts)


def _converter(annotation: Any) -> Callable[[str], Any]:
  def convert(text: str) -> Any:
    try:
      return read(annotation, text)
    except ValueError as error:
      # argparse shows the message of this error only.
      raise argparse.ArgumentTypeError(str(error)) from None

  return convert


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
  def __init__(self, prog: str):
    width = min(shutil.get_terminal_size().columns, 100)
    super().__init__(prog, max_help_position=32, width=width)
