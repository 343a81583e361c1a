"""Markdown as plain text, with its title and the fields of its front matter."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import markdown_it
from markdown_it.token import Token

from realm_jax.corpus.formats import front_matter, html_text, outline
from realm_jax.corpus.formats.html_text import Piece
from realm_jax.corpus.formats.outline import Block, Mark

_OWN = ("id", "text", "spans")  # which the file has by itself
_MOST_NESTED = 100


class Markdown(NamedTuple):
  """A text of Markdown.

  Attributes:
    title: That of its front matter, or its first heading; "" if it has neither.
    text: Its blocks without markup, and without a heading at the beginning that is the title. Links
      to addresses are followed by these, except in headings.
    fields: What else its front matter has.
    outline: Where its sections begin.
  """

  title: str
  text: str
  fields: dict[str, Any]
  outline: tuple[Mark, ...]


def read_markdown(text: str) -> Markdown:
  """Reads CommonMark with tables and strikethrough."""
  fields, text = front_matter.read(text)
  title = fields.get("title")
  fields = {key: value for key, value in fields.items() if key not in (*_OWN, "title")}
  title = "" if title is None or isinstance(title, (list, dict)) else str(title).strip()
  blocks = _blocks(_parser().parse(text))
  title = title or next((block.text for block in blocks if block.level), "")
  if blocks and blocks[0].level and blocks[0].text == title:
    blocks = blocks[1:]
  text, marks = outline.joined(blocks)
  return Markdown(" ".join(title.split()), text, fields, marks)


@functools.cache
def _parser() -> markdown_it.MarkdownIt:
  parser = markdown_it.MarkdownIt("commonmark", {"maxNesting": _MOST_NESTED})
  return parser.enable(["table", "strikethrough"])


def _blocks(tokens: Sequence[Token]) -> list[Block]:
  """Returns the blocks of the page."""
  blocks: list[Block] = []
  level, in_cell, joint = 0, False, ""
  for token, pieces in zip(tokens, _shown(tokens), strict=True):
    if token.level == 0 and token.nesting >= 0:
      joint, level = "", int(token.tag[1:]) if token.type == "heading_open" else 0
    elif token.type == "tr_open" and joint:
      joint = "\n"
    elif token.type in ("td_open", "th_open", "table_close"):
      in_cell = token.nesting > 0
    text = _joined([piece._replace(address="") for piece in pieces] if level else pieces)
    if not text.strip():
      continue
    if joint:
      blocks[-1] = blocks[-1]._replace(text=blocks[-1].text + joint + text)
    else:
      blocks.append(Block(text, level))
    joint = " " if in_cell else "\n"
  return blocks


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
