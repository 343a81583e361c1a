"""Whether a text runs from left to right or from right to left."""

import regex

_RIGHT_TO_LEFT = regex.compile(r"[\p{bc=R}\p{bc=AL}]")
_LEFT_TO_RIGHT = regex.compile(r"\p{bc=L}")


def direction(text: str) -> str:
  """Returns "rtl" or "ltr" by the majority of the letters, and "auto" without letters.

  A browser's own `auto` goes by the first letter, which may be that of a foreign name.
  """
  right, left = (len(regex.findall(p, text)) for p in (_RIGHT_TO_LEFT, _LEFT_TO_RIGHT))
  if not right and not left:
    return "auto"
  return "rtl" if right > left else "ltr"


def has_right_to_left(text: str) -> bool:
  """Returns whether any letter of a text runs from right to left."""
  return _RIGHT_TO_LEFT.search(text) is not None
