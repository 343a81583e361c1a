"""Salient spans by rule: dates, numbers and capitalised names, in plain text.

A tagger that needs no training. Guu et al. 2020, section 3.4, take the named entities of a trained
tagger and the dates of a regular expression; the date patterns here are that half.
"""

import bisect
import re

_MONTH = (
  r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
  r"|Jan\.|Feb\.|Mar\.|Apr\.|Jun\.|Jul\.|Aug\.|Sept?\.|Oct\.|Nov\.|Dec\.)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_ERA = r"(?:\s?(?:BC|AD|BCE|CE)\b)?"
_YEAR = r"(?:[1-9]\d{2,3})"
_PLAIN_YEAR = r"(?:1\d{3}|20\d{2})"

DATE = re.compile(
  "|".join(
    (
      r"\b\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\b",  # 1969-07-20
      rf"\b{_DAY}\s(?:of\s)?{_MONTH}(?:,?\s{_YEAR}\b{_ERA})?(?!\w)",  # 20 July 1969
      rf"\b{_MONTH}\s{_DAY}(?:,\s{_YEAR}\b{_ERA})?(?!\w)",  # July 20, 1969
      rf"\b{_MONTH},?\s{_YEAR}\b{_ERA}",  # July 1969
      r"\b(?:\d{1,2}(?:st|nd|rd|th)|[Ff]irst|[Ss]econd|[Tt]hird|[A-Za-z]+th)\s(?:century|millennium)\b"
      rf"{_ERA}",  # 19th century
      r"\b[1-9]\d{2,3}s\b",  # 1960s
      rf"\b{_PLAIN_YEAR}\s?[–-]\s?(?:{_PLAIN_YEAR}|\d{{2}})\b",  # 1914–1918, 1914-18
      r"\b\d{1,4}\s?(?:BC|BCE|CE)\b|\bAD\s?\d{1,4}\b",  # 44 BC, AD 70
      rf"\b{_PLAIN_YEAR}\b",  # 1969
      rf"\b{_MONTH}(?!\w)(?<!May)(?<!March)",  # July
    )
  )
)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w])")
_UPPER = "".join(c for c in map(chr, range(0x250)) if c.isupper())
_INITIALS = r"\b(?:(?:[A-Z]\.){2,}|[A-Z]\.(?=\s[A-Z]))"  # U.S.; the J. of J. Smith
_NAME_WORD = rf"(?:{_INITIALS}|\b[{_UPPER}](?:[\w'’]|-(?=\w))*)"
_CONNECTOR = r"(?:of|the|de|la|le|du|van|von|der|den|da|di|del|al|el|and)"
NAME = re.compile(rf"{_NAME_WORD}(?:\s(?:{_CONNECTOR}\s){{0,2}}{_NAME_WORD})*")

# Words that are capitalised only because a sentence begins with them.
_SENTENCE_STARTERS = frozenset(
  "a an the this that these those it its he she they we you i his her their our your my there here "
  "in on at by for from to of with without within into over under after before during since until "
  "while when where who what which why how if as and but or nor so yet although though because "
  "however therefore also then thus many most some few several both each every all any no not only "
  "one two three four five six seven eight nine ten first second third another other such more "
  "less today now later soon often sometimes usually people according between among through "
  "about".split()
)


def find_salient_spans(text: str) -> list[tuple[int, int]]:
  """Returns byte offsets `(start, limit)` of dates, names and numbers, in order; none overlap."""
  taken: list[tuple[int, int]] = []

  def take(start: int, limit: int) -> None:
    place = bisect.bisect(taken, (start, limit))
    before_ends = taken[place - 1][1] if place else 0
    after_starts = taken[place][0] if place < len(taken) else limit
    if before_ends <= start < limit <= after_starts:
      taken.insert(place, (start, limit))

  for match in DATE.finditer(text):
    take(*match.span())
  for match in NAME.finditer(text):
    take(*_without_sentence_starters(text, *match.span()))
  for match in NUMBER.finditer(text):
    take(*match.span())
  return to_byte_offsets(text, taken)


def to_byte_offsets(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
  """Turns character offsets in ascending order into UTF-8 byte offsets."""
  if text.isascii():
    return list(spans)
  offsets = []
  character = byte = 0
  for start, limit in spans:
    begin = byte + len(text[character:start].encode())
    end = begin + len(text[start:limit].encode())
    offsets.append((begin, end))
    character, byte = limit, end
  return offsets


def _without_sentence_starters(text: str, start: int, limit: int) -> tuple[int, int]:
  """Drops leading words that are no part of a name."""
  while start < limit:
    word = re.match(r"\S+", text[start:limit]).group()
    if word.lower().strip(".'’") not in _SENTENCE_STARTERS:
      break
    start += len(word)
    while start < limit and text[start].isspace():
      start += 1
  return start, limit
