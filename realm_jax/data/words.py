"""Splits text into words like annotated corpora do (CoNLL, Penn Treebank).

A word is a run of letters, digits and marks. `U.S.`, `Dr.`, `e.g.`, `O'Brien`, `Osc-Dis` and
`3,000.5` are one word each; `'s` is a word of its own, as are punctuation marks, symbols and
ideographs. Combining marks stay with their character, and modifiers with their emoji.
"""

import re
import unicodedata

_MARK = "".join(
  re.escape(character)
  for character in map(chr, range(0x300, 0x10000))
  if unicodedata.category(character).startswith("M")
)
_JOINER = "\u200c\u200d"  # zero-width
_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?:[^\W{_IDEOGRAPH}]|[{_MARK}{_JOINER}])"
_SKIN_TONE = "\U0001f3fb-\U0001f3ff"
_REGIONAL_INDICATOR = "[\U0001f1e6-\U0001f1ff]"
_CLITIC = r"(?i:s|re|ve|ll|d|m)"
_ABBREVIATION = (
  r"(?:Mr|Mrs|Ms|Dr|Prof|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rep|Pres|St|Mt|Ft|Jr|Sr|Inc|Ltd|Co"
  r"|Corp|Bros|No|Nos|vs|v|pp|p|vol|ed|eds|etc|cf|ca|c|al|approx|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?"
  r"|Oct|Nov|Dec)"
)
_WORD = re.compile(
  "|".join(
    (
      rf"(?<!\w)(?:[^\W\d_]\.){{2,}}(?!{_LETTER})",  # U.S., e.g., J.R.R.
      rf"(?<!\w){_ABBREVIATION}\.(?=\s+\S)",
      r"(?<!\w)[A-Z]\.(?=\s+\S)",  # an initial
      rf"(?<=\w)['’]{_CLITIC}(?!{_LETTER})",
      rf"\d+(?:[.,:]\d+)+(?!{_LETTER})",
      rf"{_LETTER}+(?:(?:[-&·]|['’](?!{_CLITIC}(?!{_LETTER}))){_LETTER}+)*",
      rf"[{_IDEOGRAPH}][{_MARK}]*",
      rf"{_REGIONAL_INDICATOR}{{2}}",  # a flag
      r"\.\.+|--+",
      rf"\S(?:[{_MARK}{_SKIN_TONE}]|\u200d\S?)*",
    )
  )
)


def split_words(text: str) -> list[tuple[int, int]]:
  """Returns character offsets `(start, limit)` of words, which cover all but white space."""
  return [match.span() for match in _WORD.finditer(text)]
