"""What readers see of HTML inside another text, found in one pass whatever it is.

Parsers of whole pages build a tree, in a time that grows with the square of its depth or with a
part of the page missing; here tags alone decide which words stay apart.
"""

import html
import re
from typing import NamedTuple

# What does not divide words; all other elements do, those of no standard as well.
_JOINING = frozenset(
  "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd mark nobr q rp rt ruby s "
  "samp small span strike strong sub sup time tt u var wbr".split()
)
_CELLS = ("td", "th")
HIDDEN = ("script", "style", "template")
_MOST_ATTRIBUTES = 50  # of a tag, with quotation marks; more would be read again for each tag
_MARKUP = re.compile(r"<(?:!--|[?!/]?[a-zA-Z\[])")
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_ADDRESS = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_ALT = re.compile(r"""\salt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)
_STOP = re.compile(r""">|=\s*["']""")
_SCHEMES = ("http://", "https://", "ftp://", "mailto:")


class Piece(NamedTuple):
  """A tag, or the text before the next one.

  Attributes:
    text: What it shows: text without entities, or what stands in the place of a tag.
    opens: Name of the element that it begins, "" for none.
    closes: Name of the element that it ends, "" for none.
    address: Where a link leads that it begins.
  """

  text: str
  opens: str = ""
  closes: str = ""
  address: str = ""


def pieces(source: str) -> list[Piece]:
  """Divides HTML into tags and texts; comments and declarations are left out."""
  found, place = [], 0
  while markup := _MARKUP.search(source, place):
    start, limit = markup.start(), _limit(source, markup)
    if limit < 0:  # no tag, as nothing ends it
      break
    found.append(Piece(html.unescape(source[place:start])))
    if name := _NAME.match(source, start, limit):
      found.append(_tag(source[start:limit], name[1].lower()))
    place = limit
  return [*found, Piece(html.unescape(source[place:]))]


def address(target: str) -> str:
  """Returns the target of a link if it is an address that a reader may look for, or ""."""
  return target.strip() if target.strip().lower().startswith(_SCHEMES) else ""


def _limit(source: str, markup: re.Match) -> int:
  """Returns where a tag or a comment ends, or -1."""
  if markup[0] == "<!--":
    end = source.find("-->", markup.end())
    return end + 3 if end >= 0 else len(source)
  place = markup.end()
  for _ in range(_MOST_ATTRIBUTES):
    if not (stop := _STOP.search(source, place)):
      break
    if stop[0] == ">":
      return stop.end()
    place = source.find(stop[0][-1], stop.end()) + 1
    if not place:
      break
  # A quotation mark that is never closed quotes nothing.
  return source.find(">", markup.end()) + 1 or -1


def _tag(tag: str, name: str) -> Piece:
  text = " " if name in _CELLS else "" if name in _JOINING else "\n"
  if tag.startswith("</"):
    return Piece(text, closes=name)
  if name == "img":
    return Piece(_attribute(_ALT, tag))
  return Piece(text, opens=name, address=address(_attribute(_ADDRESS, tag)) if name == "a" else "")


def _attribute(pattern: re.Pattern, tag: str) -> str:
  match = pattern.search(tag)
  return html.unescape(next(filter(None, match.groups()), "")) if match else ""
