"""Text of any script in the columns of a terminal."""

import unicodedata

import regex

_RIGHT_TO_LEFT = regex.compile(r"[\p{bc=R}\p{bc=AL}]")
_LEFT_TO_RIGHT = regex.compile(r"\p{bc=L}")


# Also marks that override the order of letters, and the ends of lines that a terminal knows alone.
_CONTROL = regex.compile(r"[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069--\n\t]", regex.V1)


def direction(text: str) -> str:
  """Returns "rtl" or "ltr" by the majority of the letters, and "auto" without letters.

  A browser's own `auto` goes by the first letter, which may be that of a foreign name.
  """
  right, left = (len(regex.findall(p, text)) for p in (_RIGHT_TO_LEFT, _LEFT_TO_RIGHT))
  if not right and not left:
    return "auto"
  return "rtl" if right > left else "ltr"


def plain(text: str) -> str:
  """Returns a text that a terminal shows and does not obey: without control characters.

  Line ends and tabs stay. What would begin a sequence, or reverse the order of what follows, is
  shown as the replacement character.
  """
  return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def line(text: str) -> str:
  """Returns a text as `plain` does, on one line."""
  return plain(text).replace("\n", " ").replace("\t", " ")


def has_right_to_left(text: str) -> bool:
  """Returns whether any letter of a text runs from right to left."""
  return _RIGHT_TO_LEFT.search(text) is not None


_CHARACTER = regex.compile(r"\X")
_ISOLATE, _END_OF_ISOLATE = {"ltr": "\u2066", "rtl": "\u2067"}, "\u2069"


def column(text: str, width: int) -> str:
  """Returns a text cut and filled to a width; wide characters take two cells, marks none."""
  kept, cells = [], 0
  for character in _CHARACTER.findall(line(text)):
    needs = 2 if unicodedata.east_asian_width(character[0]) in "WF" else 1
    if cells + needs > width:
      break
    kept.append(character)
    cells += needs
  return isolated("".join(kept)) + " " * (width - cells)


def isolated(text: str) -> str:
  """Returns a text that, if any of it runs from right to left, leaves its line's order alone."""
  if not has_right_to_left(text):
    return text
  return f"{_ISOLATE[direction(text)]}{text}{_END_OF_ISOLATE}"
