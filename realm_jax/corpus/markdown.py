"""Markdown as plain text, with its title and the fields of its front matter."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import markdown_it
from markdown_it.token import Token

from realm_jax.corpus import front_matter, html_text
from realm_jax.corpus.html_text import Piece

_OWN = ("id", "text", "spans")  # which the file has by itself
_MOST_NESTED = 100


class Markdown(NamedTuple):
  """A text of Markdown.

  Attributes:
    title: That of its front matter, or its first heading; "" if it has neither.
    text: Its blocks without markup, and without a heading at the beginning that is the title. Links
      to addresses are followed by these.
    fields: What else its front matter has.
  """

  title: str
  text: str
  fields: dict[str, Any]


def read_markdown(text: str) -> Markdown:
  """Reads CommonMark with tables and strikethrough."""
  fields, text = front_matter.read(text)
  title = fields.get("title")
  fields = {key: value for key, value in fields.items() if key not in (*_OWN, "title")}
  title = "" if title is None or isinstance(title, (list, dict)) else str(title).strip()
  blocks, heading = _blocks(_parser().parse(text))
  title = title or heading
  if heading == title and blocks[:1] == [title]:
    blocks = blocks[1:]
  return Markdown(" ".join(title.split()), "\n\n".join(blocks), fields)


@functools.cache
def _parser() -> markdown_it.MarkdownIt:
  parser = markdown_it.MarkdownIt("commonmark", {"maxNesting": _MOST_NESTED})
  return parser.enable(["table", "strikethrough"])


def _blocks(tokens: Sequence[Token]) -> tuple[list[str], str]:
  """Returns the texts of the blocks of the page, and the first heading without addresses."""
  blocks: list[str] = []
  heading, is_heading, in_cell, joint = "", False, False, ""
  for token, pieces in zip(tokens, _shown(tokens), strict=True):
    if token.level == 0 and token.nesting >= 0:
      joint, is_heading = "", token.type == "heading_open"
    elif token.type == "tr_open" and joint:
      joint = "\n"
    elif token.type in ("td_open", "th_open", "table_close"):
      in_cell = token.nesting > 0
    text = _joined(pieces)
    if not text.strip():
      continue
    if joint:
      blocks[-1] += joint + text
    else:
      if is_heading:
        heading = heading or _joined(piece._replace(address="") for piece in pieces)
      blocks.append(text)
    joint = " " if in_cell else "\n"
  return blocks, heading


def _shown(tokens: Sequence[Token]) -> Iterator[list[Piece]]:
  """Yields the pieces of each token without what scripts and the like have.

  These may go on over several blocks. One that is not closed, as in a sentence about `<script>`,
  hides nothing.
  """
  found = [[*_pieces(token)] for token in tokens]
  last = {piece.closes: number for number, pieces in enumerate(found) for piece in pieces}
  hidden = ""
  for number, (token, pieces) in enumerate(zip(tokens, found, strict=True)):
    last_here = {piece.closes: place for place, piece in enumerate(pieces)}
    kept = []
    for place, piece in enumerate(pieces):
      if hidden:
        hidden = "" if piece.closes == hidden else hidden
        continue
      if piece.opens in html_text.HIDDEN:
        goes_on = token.type == "html_block" and last.get(piece.opens, -1) > number
        hidden = piece.opens if goes_on or last_here.get(piece.opens, -1) > place else ""
      kept.append(piece)
    yield kept


def _pieces(token: Token) -> Iterator[Piece]:
  """Yields what a token has for readers."""
  if token.type in ("text", "code_inline", "fence", "code_block"):
    yield Piece(token.content)
  elif token.type in ("softbreak", "hardbreak"):
    yield Piece("\n")
  elif token.type in ("html_block", "html_inline"):
    yield from html_text.pieces(token.content)
  elif token.type == "link_open" and token.info != "auto":
    target = _parser().normalizeLinkText(str(token.attrs.get("href", "")))
    yield Piece("", opens="a", address=html_text.address(target))
  elif token.type == "link_close":
    yield Piece("", closes="a")
  for child in token.children or ():
    yield from _pieces(child)


def _joined(pieces: Iterable[Piece]) -> str:
  """Returns the text of pieces, in which links are followed by their addresses."""
  texts: list[str] = []
  address, start, has_tags = "", 0, False
  for piece in pieces:
    if piece.closes == "a" and address:
      if address not in "".join(texts[start:]):
        texts.append(f" ({address})")
      address = ""
    if piece.address:
      address, start = piece.address, len(texts)
    has_tags = has_tags or bool(piece.opens or piece.closes)
    texts.append(piece.text)
  text = "".join(texts).strip("\n")
  return "\n".join(filter(None, map(str.strip, text.split("\n")))) if has_tags else text
