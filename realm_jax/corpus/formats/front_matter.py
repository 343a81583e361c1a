"""The fields at the beginning of a Markdown file: YAML or TOML, as people write it.

Values are what their author sees, as in a table: a number only if it is written as its number, so
that `no`, `12:30`, `01234`, `1.10` and dates are texts. A block with a mistake is read key by key,
where what cannot be read is a text.
"""

import datetime
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from realm_jax.corpus import limits
from realm_jax.corpus.documents import written_number

_BLOCK = re.compile(
  r"\s*^(---|\+\+\+)[ \t]*\r?\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
_KEYS = {
  "---": re.compile(r"""(["']?)([^\s#\-\[\]{}&*!|>%@`"'?:,][^:"']{0,99}?)\1[ \t]*:(?:\s+|\Z)"""),
  "+++": re.compile(r"""(["']?)([\w.-]{1,100})\1[ \t]*=[ \t]*"""),
}
_TABLE = re.compile(r"\[{1,2}([^\[\]]+)\]{1,2}")
_LONG_KEY = re.compile(r"(?:\.[^.\n=]*+){200}")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None, ".nan": None}
_WRONG = (yaml.YAMLError, ValueError, RecursionError)


def read(text: str) -> tuple[dict[str, Any], str]:
  """Divides a text into the fields of its front matter and the rest."""
  # What is longer is no front matter, and costs nothing.
  match = _BLOCK.match(text[: limits.FRONT_MATTER])
  if not match:
    return {}, text
  fence, block = match[1], match[2].expandtabs(1) if match[1] == "---" else match[2]
  try:
    found = _READ[fence](block)
  except _WRONG:
    found = _by_key(block, fence)
  if not isinstance(found, dict):
    return {}, text
  return found, text[match.end() :]


def _yaml(block: str) -> Any:
  count = 0

  def value(node: yaml.Node) -> Any:
    nonlocal count
    count += 1
    if count > limits.FRONT_MATTER_VALUES:
      raise ValueError("too many values")
    if isinstance(node, yaml.SequenceNode):
      return [*map(value, node.value)]
    if isinstance(node, yaml.MappingNode):
      merged, own = {}, {}
      for key, each in node.value:
        if not isinstance(key, yaml.ScalarNode):
          raise ValueError("a key that is no text")
        if key.value == "<<" and not isinstance(each, yaml.ScalarNode):
          for base in reversed(each.value if isinstance(each, yaml.SequenceNode) else [each]):
            merged |= value(base)
        else:
          own[key.value] = value(each)
      return merged | own
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
    return _plain(node.value) if is_plain else node.value

  node = yaml.compose(block, Loader=yaml.BaseLoader)
  return None if node is None else value(node)


def _plain(written: str) -> Any:
  if (lower := written.lower()) in _WORDS:
    return _WORDS[lower]
  found = written_number(written)
  return written if found is None else found


def _toml(block: str) -> Any:
  if _LONG_KEY.search(block):
    raise ValueError("a key of many parts, each of which tomllib stores with all before it")
  return _without_infinity(tomllib.loads(block))


_READ: Mapping[str, Callable[[str], Any]] = {"---": _yaml, "+++": _toml}


def _without_infinity(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _without_infinity(each) for key, each in value.items()}
  if isinstance(value, list):
    return [*map(_without_infinity, value)]
  if isinstance(value, float) and math.isinf(value):
    return str(value)
  return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else value


def _by_key(block: str, fence: str) -> dict[str, Any] | None:
  """Returns the value of each key apart; None if the block is no front matter but text."""
  found: dict[str, Any] = {}
  for name, rest, part in _parts(block, fence):
    if not name:
      return None
    try:
      read = _READ[fence](part)
    except _WRONG:
      read = None
    found |= read if isinstance(read, dict) else {name: rest.strip().strip("\"'")}
  return found or None


def _parts(block: str, fence: str) -> Iterator[tuple[str, str, str]]:
  """Yields each key, what is written after it, and both with the lines that belong to it."""
  name, rest, lines, in_table = "", "", [], False
  for line in block.splitlines(keepends=True):
    if not line.strip() or line[0] == "#":
      continue
    table = _TABLE.match(line) if fence == "+++" else None
    match = table or (None if in_table else _KEYS[fence].match(line))
    in_table = in_table or bool(table)
    if match:
      if lines:
        yield name, rest, "".join(lines)
      name, rest, lines = match[match.lastindex or 0], line[match.end() :], [line]
    elif name and (line[0] in " \t-]}\"'" or fence == "+++"):
      rest, lines = rest + line, [*lines, line]
    else:
      yield "", "", line
      return
  if lines:
    yield name, rest, "".join(lines)
