"""The keywords of a job as command-line flags: their types, defaults and meanings.

A keyword that is a dataclass has a flag for each field, `--optimizer.learning_rate=1e-4`, or any
unique ending of it, `--learning_rate=1e-4`. Values that cannot be written as one word are set
through gin.
"""

import collections.abc
import dataclasses
import difflib
import functools
import inspect
import os
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from realm_jax.foundations import choices

REQUIRED = inspect.Parameter.empty

_SEQUENCES = {tuple: tuple, list: list, collections.abc.Sequence: tuple}
_SCALARS = {str: "TEXT", int: "INT", float: "FLOAT", bool: "true|false"}


class UsageError(Exception):
  """The command line or the configuration names something wrong."""


class Plain(NamedTuple):
  """How a value is written as one word: its type in the help, and what reads it."""

  metavar: str
  read: Callable[[str], Any]


def plain(annotation: Any) -> Plain | None:
  """Returns how values of a type are written; None if they are set through gin."""
  origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
  if annotation in _SCALARS:
    booleans = {"true": True, "false": False}
    read = (lambda text: booleans[text.lower()]) if annotation is bool else annotation
    return Plain(_SCALARS[annotation], read)
  if origin is typing.Literal:
    known = {str(part): part for part in parts}
    return Plain("|".join(known), known.__getitem__)
  if origin is typing.Annotated:
    if choices.IMPORTED in parts:
      return None
    if isinstance(parts[1], choices.Written):
      return Plain(parts[1].metavar, parts[1].read)
    inner = plain(parts[0])
    if inner is None or choices.WHOLE in parts:
      return inner and Plain("TEXT", lambda text: (text,))
    if annotation == choices.Words:
      return inner
    return Plain(f"{inner.metavar} ({parts[1]})", inner.read)
  if (some := without_none(annotation)) is not annotation:
    inner = plain(some)
    return inner and Plain(
      f"{inner.metavar} or none",
      lambda text: None if text.lower() == "none" else inner.read(text),
    )
  if origin not in _SEQUENCES:
    return None
  fixed = origin is tuple and Ellipsis not in parts
  parts = [part for part in parts if part is not Ellipsis]
  of_words = (typing.Literal, typing.Annotated)
  words = [p for p in parts if p in _SCALARS or typing.get_origin(p) in of_words]
  if words != parts:
    return None
  items = [item for word in words if (item := plain(word))]

  def read_items(text):
    # A file or directory may have commas in its name.
    texts = [text] if str in words and os.path.exists(text) else text.split(",") if text else []
    readers = items if fixed else items * len(texts)
    return _SEQUENCES[origin](i.read(text) for i, text in zip(readers, texts, strict=True))

  return Plain(",".join(item.metavar for item in items) + ",..." * (not fixed), read_items)


@dataclasses.dataclass(frozen=True)
class Keyword:
  """One keyword of a job, or one field of a configuration.

  Attributes:
    name: Its name in the signature; `flatten` prefixes the path of a field.
    default: Its default; `REQUIRED` if there is none.
    documents: Docstrings of which the first that describes it has its meaning.
    positional: Whether its value may be given without the flag's name.
    overridden: Whether the default comes from an instance rather than the signature.
  """

  name: str
  annotation: Any
  default: Any
  documents: tuple[str, ...]
  positional: bool = False
  overridden: bool = False

  @property
  def meaning(self) -> str:
    """Its description in the docstring."""
    name = self.name.rpartition(".")[2]
    return next((m[name] for m in map(choices.meanings, self.documents) if name in m), "")

  @functools.cached_property
  def plain(self) -> Plain | None:
    return plain(self.annotation)

  @property
  def imported(self) -> bool:
    """Whether only a model from elsewhere has another value than the default."""
    return choices.IMPORTED in typing.get_args(self.annotation)

  @property
  def whole(self) -> bool:
    """Whether a flag is one item of a sequence, and may be repeated."""
    return choices.WHOLE in typing.get_args(self.annotation)

  def checked(self, value: Any) -> Any:
    """Returns a value, of which `~` is the home directory unless it is words; refuses one that its
    type does not allow."""
    name = self.name.rpartition(".")[2]
    if self.default != value and value in ("", ("",)) or self.default is REQUIRED and value == ():
      raise ValueError(f"{name} is empty; give a value, or leave it out")
    choices.check(self.annotation, **{name: value})
    if without_none(self.annotation) == choices.Words:
      return value
    return tuple(map(_at_home, value)) if isinstance(value, tuple) else _at_home(value)

  @property
  def config(self) -> type | None:
    """The dataclass that this keyword is, if any; its default may be of a subclass."""
    some = without_none(self.annotation)
    if not isinstance(some, type) or not dataclasses.is_dataclass(some):
      return None
    return type(self.default) if isinstance(self.default, some) else some


def keywords(function: Callable[..., Any], *, instance: Any = None) -> tuple[Keyword, ...]:
  """Returns the keywords of a job, or the fields of a dataclass; an instance has the defaults."""
  found = []
  documented = inspect.getmro(function) if inspect.isclass(function) else [function]
  documents = tuple(inspect.getdoc(each) or "" for each in documented)
  for p in inspect.signature(function, eval_str=True).parameters.values():
    if choices.OBJECT in typing.get_args(p.annotation):
      continue
    default = p.default if instance is None else getattr(instance, p.name)
    is_setting = inspect.isclass(function) and p.default is not REQUIRED
    positional = p.kind is not p.KEYWORD_ONLY and not is_setting
    overridden = default is not p.default and default != p.default
    found.append(Keyword(p.name, p.annotation, default, documents, positional, overridden))
  return tuple(found)


def configs(function: Callable[..., Any]) -> tuple[type, ...]:
  """Returns the dataclasses among the keywords of a job, and among their fields."""
  found = [keyword.config for keyword in keywords(function) if keyword.config is not None]
  return tuple(dict.fromkeys(inner for config in found for inner in (config, *configs(config))))


def flatten(tree: Sequence[Keyword]) -> tuple[Keyword, ...]:
  """Returns the keywords with configurations replaced by their fields, under dotted names."""
  found = []
  for keyword in tree:
    if keyword.config is None:
      found.append(keyword)
      continue
    instance = keyword.default if dataclasses.is_dataclass(keyword.default) else None
    fields = keywords(keyword.config, instance=instance)
    found += flatten([dataclasses.replace(f, name=f"{keyword.name}.{f.name}") for f in fields])
  return tuple(found)


def matching_flags(flag: str, names: Iterable[str]) -> list[str]:
  """Returns the dotted names that a flag may mean: itself, or else all that end with it."""
  return [n for n in names if n == flag] or [n for n in names if n.endswith(f".{flag}")]


def parse(arguments: Sequence[str], tree: Sequence[Keyword]) -> dict[str, Any]:
  """Reads `--NAME=VALUE`, `--NAME VALUE`, `--NAME` of a boolean, and positional values.

  Of several values the last counts; of a sequence that takes them one by one, all do.

  What follows a lone `--` is positional, and so is what begins with `--` and has spaces before any
  `=`. A positional keyword that is a sequence takes all texts that are left.

  Raises:
    ValueError: If a flag is unknown or ambiguous, or its value is not of its type.
  """
  known = {keyword.name: keyword for keyword in flatten(tree)}
  positional = [keyword for keyword in known.values() if keyword.positional]
  found, words, rest = {}, list(arguments), []
  num_texts = len(words) - words.index("--") - 1 if "--" in words else -1
  while words:
    word = words.pop(0)
    flag, equals, text = word.partition("=")
    if len(words) == num_texts:
      continue
    if flag.startswith("--") and len(flag.split()) == 1 and len(words) > num_texts:
      keyword = _named(flag, known)
    elif positional and typing.get_origin(positional[0].annotation) in _SEQUENCES:
      rest.append(word)
      continue
    elif positional:
      keyword, equals, text = positional.pop(0), "=", word
    else:
      raise ValueError(f"unexpected argument {word!r}; write --KEYWORD=VALUE")
    if keyword.plain is None:
      brought = "comes with an imported --start, or " * keyword.imported
      raise ValueError(f"{flag} {brought}is set through gin: --gin_file or --gin.NAME=@...")
    if not equals:
      following = words[0] if words else "--"
      if keyword.annotation is bool and following.lower() not in ("true", "false"):
        text = "true"
      elif following.startswith("--"):
        raise ValueError(f"{flag} needs a value; write {flag}={keyword.plain.metavar}")
      else:
        text = words.pop(0)
    try:
      value = keyword.plain.read(text)
    except (KeyError, ValueError):
      raise ValueError(f"{flag}: {text!r} is not {keyword.plain.metavar}") from None
    value = keyword.checked(value)
    found[keyword.name] = (*found.get(keyword.name, ()), *value) if keyword.whole else value
  return found | ({positional[0].name: tuple(rest)} if rest else {})


def _named(flag: str, known: Mapping[str, Keyword]) -> Keyword:
  names = matching_flags(flag[2:], known)
  if len(names) == 1:
    return known[names[0]]
  inner = names or [name for name in known if name.startswith(f"{flag[2:]}.")]
  if inner:
    ways = textwrap.shorten(" or ".join(f"--{name}" for name in inner), 200, placeholder=" ...")
    raise ValueError(f"{flag} is one of several; write {ways}")
  endings = {f"--{ending}" for name in known for ending in (name, name.rpartition(".")[2])}
  raise ValueError(f"no flag is named {flag}{nearest(flag, endings)}")


def nearest(word: str, words: Iterable[str]) -> str:
  """Returns " (did you mean ...?)" with the closest match to `word`, or nothing."""
  near = difflib.get_close_matches(word, words, n=1)
  return f" (did you mean {near[0]}?)" if near else ""


def placeholder(keyword: Keyword) -> str:
  """Returns how a usage line shows a value that needs no flag: `[TEXTS]...`."""
  many = typing.get_origin(keyword.annotation) in _SEQUENCES
  name = keyword.name.rpartition(".")[2].upper()
  shown = name if keyword.default is REQUIRED else f"[{name}]"
  return f"{shown}..." if many else shown


def help_text(tree: Sequence[Keyword]) -> str:
  """Returns the help on keywords, each by its shortest name, in groups by path."""
  shown = (keyword for keyword in flatten(tree) if not keyword.imported)
  found = sorted(shown, key=lambda keyword: keyword.name.rpartition(".")[0])
  width, indent = min(shutil.get_terminal_size().columns, 100), " " * 6
  lines, group = [], None
  for keyword in found:
    path, *_ = keyword.name.rpartition(".")
    if path != group:
      lines += ["", f"{path or 'keywords of the job'}:"]
      group = path
    parts = keyword.name.split(".")
    endings = (".".join(parts[first:]) for first in reversed(range(len(parts))))
    short = next(e for e in endings if matching_flags(e, [k.name for k in found]) == [keyword.name])
    lines.append(f"  --{short} {keyword.plain.metavar if keyword.plain else '(through gin)'}")
    text = f"{keyword.meaning} ({_default(keyword)})"
    lines += textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
  return "\n".join(lines)


def _default(keyword: Keyword) -> str:
  def as_text(value):
    if isinstance(value, (tuple, list)):
      return ",".join(map(as_text, value)) or "empty"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value) or '""'

  if keyword.default is REQUIRED:
    return "required; may stand without its name" if keyword.positional else "required"
  return f"default: {textwrap.shorten(as_text(keyword.default), 60, placeholder='...')}"


def _at_home(value: Any) -> Any:
  """Returns a text with `~` or `~user` at its beginning as a home directory."""
  is_path = isinstance(value, str) and re.match(r"~[\w.-]*(/|$)", value)
  return os.path.expanduser(value) if is_path else value


def without_none(annotation: Any) -> Any:
  """Returns X of `X | None`, and other annotations as they are."""
  if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
    return annotation
  some = [part for part in typing.get_args(annotation) if part is not type(None)]
  return some[0] if len(some) == 1 else annotation


def refuse_missing(name: str, keywords: Sequence[Keyword], given: Container[str]) -> None:
  """Raises UsageError if a keyword that a job needs is not given."""
  needed = flatten([k for k in keywords if k.default is REQUIRED])
  needed = [k.name for k in needed if k.default is REQUIRED and k.name not in given]
  if needed:
    ways = ", ".join(f"--{name.rpartition('.')[2]}" for name in needed)
    raise UsageError(f"{name} needs {ways}; see realm {name} --help")


def call(
  function: Callable[..., Any], values: Mapping[str, Any], *, instance: Any = None, path: str = ""
) -> Any:
  """Calls a function, and makes its configurations, of values by their dotted names.

  Raises:
    UsageError: If a configuration refuses its values.
  """
  arguments = {}
  for keyword in keywords(function, instance=instance):
    name = f"{path}{keyword.name}"
    if keyword.config is not None:
      chosen = keyword.default if isinstance(keyword.default, keyword.config) else None
      if chosen is not None or any(value.startswith(f"{name}.") for value in values):
        try:
          made = call(keyword.config, values, instance=chosen, path=f"{name}.")
        except ValueError as error:
          raise UsageError(str(error)) from error
        arguments[keyword.name] = made
    elif name in values:
      arguments[keyword.name] = values[name]
    elif keyword.overridden:
      arguments[keyword.name] = keyword.default
  return function(**arguments)
