"""The text of a page of HTML, with its headings."""

import codecs
import re

from realm_jax.corpus.formats import charsets, html_text
from realm_jax.corpus.formats.outline import Block

# What has no text for readers, whatever stands in it; XHTML closes what is empty at once.
_RAW = re.compile(
  r"<(script|style|template|noscript|svg)\b(?:[^>]*/>|.*?(?:</\1\s*>|\Z))", re.I | re.S
)
_CHARSET = re.compile(
  rb"""<(?:meta\b[^>]*?charset|\?xml\b[^>]*?encoding)\s*=\s*["']?([-\w]+)""", re.I
)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINES = ("br", "dd", "dt", "li", "tr")  # a line each of one block
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def decoded(content: bytes, *, charset: str = "") -> str:
  """Returns the text of a page in the encoding that it has.

  Args:
    charset: What the message says that it is in, which counts more than what the page says.
  """
  marked = [name for bom, name in _BOMS.items() if content.startswith(bom)]
  named = [name.decode() for name in _CHARSET.findall(content[:4096])[:1]]
  # A page that could be read so far is in none of these.
  named = [name for name in named if not name.lower().startswith(("utf-16", "utf-32", "utf-7"))]
  return charsets.decoded(content, filter(None, [*marked, charset, *named]))


def read(source: str, *, page: int = 0) -> tuple[str, list[Block]]:
  """Returns the title of a page and its blocks: those of its `main`, if it has one, and without
  those that only lead elsewhere."""
  pieces = html_text.pieces(_RAW.sub(" ", source))
  mains = [number for number, piece in enumerate(pieces) if "main" in (piece.opens, piece.closes)]
  is_closed = mains and pieces[mains[0]].opens and pieces[mains[-1]].closes
  inside = range(mains[0] + 1, mains[-1] + 1) if is_closed else range(len(pieces))
  last_menu = max((n for n, piece in enumerate(pieces) if piece.closes == "nav"), default=-1)
  blocks: list[Block] = []
  texts: list[str] = []
  title, level, menus, verbatim, at = "", 0, 0, 0, 0

  def flush() -> None:
    text = "".join(texts) if verbatim else _lines("".join(texts))
    texts.clear()
    if text.strip() and not menus and at in inside:
      blocks.append(Block(text.strip("\n"), level, page))

  for at, piece in enumerate(pieces):
    name = piece.opens or piece.closes
    if not name:
      texts.append(piece.text if verbatim else " ".join(re.split(r"\s+", piece.text)))
    elif name in _LINES:
      texts.append("\n")
    elif piece.text != "\n":
      texts.append(piece.text)
    elif name == "title" and piece.closes:
      title = title or " ".join("".join(texts).split())
      texts.clear()
    else:
      flush()
      level = _HEADINGS.index(name) + 1 if piece.opens in _HEADINGS else 0
      verbatim = int(piece.opens == "pre")
      if name == "nav" and at <= last_menu:
        menus = max(0, menus + (1 if piece.opens else -1))
  flush()
  return title, blocks


def _lines(text: str) -> str:
  """Returns a text without empty lines, and without more than a space between words."""
  return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))
