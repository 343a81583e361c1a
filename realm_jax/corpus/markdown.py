"""Markdown as plain text, with its title and the fields of its front matter."""

import datetime
import functools
import html
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import markdown_it
import yaml
from markdown_it.token import Token

_FRONT_MATTER = re.compile(
  r"\s*^(---|\+\+\+)[ \t]*\r?\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
_READ: Mapping[str, Callable[[str], Any]] = {"---": yaml.safe_load, "+++": tomllib.loads}
_OWN = ("id", "_id", "text", "spans")  # which the file has by itself
_HTML = re.compile(
  r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?</\1\s*>|</?[a-z!?][^>]*>", re.DOTALL | re.IGNORECASE
)
_MOST_NESTED = 100


class Markdown(NamedTuple):
  """A text of Markdown.

  Attributes:
    title: That of its front matter, or its first heading; "" if it has neither.
    text: Its blocks without markup, and without a heading at the beginning that is the title.
    fields: What else its front matter has: plain values, and lists of them.
  """

  title: str
  text: str
  fields: dict[str, Any]


def read_markdown(text: str) -> Markdown:
  """Reads CommonMark with tables and strikethrough."""
  fields, text = _front_matter(text)
  title = fields.pop("title", "")
  title = "" if isinstance(title, list) else str(title).strip()
  blocks, heading = _blocks(_parser().parse(text))
  title = title or (blocks[heading] if heading is not None else "")
  if heading == 0 and blocks[0] == title:
    blocks = blocks[1:]
  return Markdown(" ".join(title.split()), "\n\n".join(blocks), fields)


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
  """Divides a text into the fields of its front matter, YAML or TOML, and the rest."""
  match = _FRONT_MATTER.match(text)
  try:
    found = _READ[match[1]](match[2]) if match else None
  except (yaml.YAMLError, ValueError, RecursionError):  # text between two rules, perhaps
    found = None
  if match is None or not isinstance(found, dict):
    return {}, text
  kept = {str(key): value for key, value in found.items() if _is_plain(value)}
  return {key: value for key, value in kept.items() if key not in _OWN}, text[match.end() :]


def _is_plain(value: Any) -> bool:
  if isinstance(value, list):
    return not any(isinstance(each, list) for each in value) and all(map(_is_plain, value))
  if isinstance(value, float):
    return math.isfinite(value)
  return isinstance(value, (str, int, datetime.date, datetime.time))


@functools.cache
def _parser() -> markdown_it.MarkdownIt:
  parser = markdown_it.MarkdownIt("commonmark", {"maxNesting": _MOST_NESTED})
  return parser.enable(["table", "strikethrough"])


def _blocks(tokens: Sequence[Token]) -> tuple[list[str], int | None]:
  """Returns the texts of the blocks of the page, and which one is the first heading."""
  blocks: list[str] = []
  heading, is_heading, in_cell, joint = None, False, False, ""
  for token in tokens:
    if token.level == 0 and token.nesting >= 0:
      joint, is_heading = "", token.type == "heading_open"
    elif token.type == "tr_open" and joint:
      joint = "\n"
    elif token.type in ("td_open", "th_open", "table_close"):
      in_cell = token.nesting > 0
    text = _text(token).strip("\n")
    if not text.strip():
      continue
    if joint:
      blocks[-1] += joint + text
    else:
      if is_heading and heading is None:
        heading = len(blocks)
      blocks.append(text)
    joint = " " if in_cell else "\n"
  return blocks, heading


def _text(token: Token) -> str:
  """Returns what a token has for readers."""
  if token.type in ("text", "code_inline", "fence", "code_block"):
    return token.content
  if token.type in ("softbreak", "hardbreak"):
    return "\n"
  if token.type in ("html_block", "html_inline"):
    is_break = token.content.lower().startswith("<br")
    return "\n" if is_break else html.unescape(_HTML.sub("", token.content))
  return "".join(map(_text, token.children or ()))
