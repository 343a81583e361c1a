"""Numbers whose digits are in groups, such as 1,000, 12,50,000, 1.000, 1'000 and 1 000."""

import re

# Digits in groups of three, in India of two before the last three.
_GROUPED = (
  r"(?<![\d.,])(?<!\d')(?:\d{1,3}(?:,\d{3})+(?!,?\d)|\d{1,2}(?:,\d\d)+,\d{3}(?!,?\d)"
  r"|\d{1,3}(?:'\d{3})+(?!'?\d)"
)
_THOUSANDS = re.compile(_GROUPED + ")")
_DECIMAL_COMMA = frozenset(
  "az be bg bs ca cs da de el eo es et eu fi fo fr gl hr hu hy id is it ka kk ky lt lv mk nl no pl "
  "pt ro ru sk sl sq sr sv tr uk uz vi".split()
)
_THOUSANDS_BY_POINT = re.compile(_GROUPED + r"|\d{1,3}(?:\.\d{3})+(?!\.?\d))")
_SEPARATOR = re.compile(r"[,.']")
_NO_BREAK = "\u00a0\u2007\u2009\u202f"
# Groups between spaces that no line is broken at, and where they are usual, between any.
_GROUPED_BY_SPACES = re.compile(rf"(?<![\d.,])(?<!\d')\d{{1,3}}(?:[{_NO_BREAK}]\d{{3}})+(?!\d)")
_SPACED_GROUPS = frozenset(
  "be bg cs eo et fi fr hu hy ka kk ky lt lv no pl pt ru sk sq sv uk uz".split()
)
_GROUPED_BY_ANY_SPACES = re.compile(
  rf"(?<![\d.,:/-])(?<!\d[' ])\d{{1,3}}(?:[ {_NO_BREAK}]\d{{3}})+(?! ?\d)"
)
_SPACE = re.compile(r"\s")


class DigitGroups:
  """What is between the groups of a number, in the way of a language.

  Points group where the decimal mark is a comma. Spaces group where that is usual; those that no
  line is broken at, and commas and apostrophes, do everywhere.
  """

  def __init__(self, language: str):
    self._numbers = _THOUSANDS_BY_POINT if language in _DECIMAL_COMMA else _THOUSANDS
    self._has_spaces = language in _SPACED_GROUPS
    self._spaced = _GROUPED_BY_ANY_SPACES if self._has_spaces else _GROUPED_BY_SPACES

  def without_spaces(self, text: str) -> str:
    """Returns a text of the same length with apostrophes for the spaces inside numbers."""
    if not self._has_spaces and (text.isascii() or not any(map(text.count, _NO_BREAK))):
      return text
    return self._spaced.sub(lambda number: _SPACE.sub("'", number[0]), text)

  def separators(self, text: str) -> list[tuple[int, int]]:
    """Returns where a text without spaces has what is between groups."""
    if not (text.count(",") or text.count(".") or text.count("'")):
      return []
    numbers = self._numbers.finditer(text)
    return [mark.span() for n in numbers for mark in _SEPARATOR.finditer(text, *n.span())]
