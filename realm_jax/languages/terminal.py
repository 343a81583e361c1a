"""Text of any script in the columns of a terminal."""

import unicodedata

import regex

_CHARACTER = regex.compile(r"\X")
_RIGHT_TO_LEFT = regex.compile(r"[\p{bc=R}\p{bc=AL}]")
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"


def column(text: str, width: int) -> str:
  """Returns a text cut and filled to a width; wide characters take two cells, marks none."""
  kept, cells = [], 0
  for character in _CHARACTER.findall(text):
    needs = 2 if unicodedata.east_asian_width(character[0]) in "WF" else 1
    if cells + needs > width:
      break
    kept.append(character)
    cells += needs
  return isolated("".join(kept)) + " " * (width - cells)


def isolated(text: str) -> str:
  """Returns a text that, if it runs from right to left, leaves the order of its line alone."""
  return f"{_ISOLATE}{text}{_END_OF_ISOLATE}" if _RIGHT_TO_LEFT.search(text) else text
