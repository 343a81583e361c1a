"""Finds salient spans by rule: dates, numbers and capitalised names, in plain text.

Guu et al. 2020, section 3.4, take named entities from a trained tagger and dates from a regular
expression. `find_dates` provides the latter, and `merge_spans` combines both.
"""

import bisect
import functools
import re
from collections.abc import Iterable, Iterator

from realm_jax.corpus.sentences import to_byte_offsets

_MONTH = (
  r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
  r"|Jan\.|Feb\.|Mar\.|Apr\.|Jun\.|Jul\.|Aug\.|Sept?\.|Oct\.|Nov\.|Dec\.)"
)
# An abbreviation without a full stop is a month only next to a number.
_MONTH_OF_DATE = rf"(?:{_MONTH}|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?=[\s,–-]))"
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,?\s"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_TO = r"\s?[–—-]\s?"
_ERA_NAME = r"(?:BCE|BC|CE|AD|B\.C\.E\.|B\.C\.|C\.E\.|A\.D\.)(?!\w)"
_ERA = rf"(?:\s?{_ERA_NAME})?"
_YEAR = r"(?:[1-9]\d{2,3})"
_PLAIN_YEAR = r"(?:1\d{3}|20\d{2})"
_OLD_YEAR = r"(?:[1-9]\d{0,2}(?:,\d{3}|\d)?)"
_OF_YEAR = rf"(?:,?\s{_YEAR}\b{_ERA})?"
_NOT_IN_A_NUMBER = r"(?<![\w$€£])(?<!\d[.,:/])"
_NUMBER_ENDS = r"(?![.,:/-]\d)\b"

_DECADE = r"[1-9]\d{1,2}0s"
_TENS = "(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies"
_ORDINAL_WORD = (
  r"(?i:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth"
  r"|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty-first)"
)
_CENTURIES = (
  rf"{{ordinal}}(?:(?:{_TO}|\s(?:and|or|to)\s){{ordinal}})?[\s-]"
  rf"(?i:centur(?:y|ies)|millenni(?:um|a))\b{_ERA}"
)

_FROM_A_DIGIT = (
  r"(?<!-)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?=T\d|\b)(?!-)",  # 1969-07-20
  rf"{_NOT_IN_A_NUMBER}\d{{1,2}}([./])\d{{1,2}}\1\d{{4}}{_NUMBER_ENDS}",  # 20.07.1969
  # 20 July – 3 August 1969
  rf"{_DAY}\s{_MONTH_OF_DATE}{_TO}{_DAY}\s{_MONTH_OF_DATE}{_OF_YEAR}(?!\w)",
  # 20 July 1969, 20th of July, 20–24 July
  rf"{_DAY}(?:{_TO}{_DAY})?\s(?:of\s)?{_MONTH_OF_DATE}{_OF_YEAR}(?!\w)",
  # 19th century, 18th and 19th centuries, 5th–4th century BC, 20th-century
  _CENTURIES.format(ordinal=r"\d{1,2}(?:st|nd|rd|th)"),
  rf"{_DECADE}(?:{_TO}{_DECADE})?\b{_ERA}",  # 1960s, 1960s–1970s
  # 44 BC, 300–250 BC, 10,000 BC, 14 AD
  rf"{_NOT_IN_A_NUMBER}(?:{_OLD_YEAR}{_TO})?{_OLD_YEAR}\s?{_ERA_NAME}",
  # 1914–1918, 1914-18, 1968/69
  rf"{_NOT_IN_A_NUMBER}{_PLAIN_YEAR}(?:{_TO}(?:{_PLAIN_YEAR}|\d{{2}})|/\d{{2}}){_NUMBER_ENDS}",
  rf"{_NOT_IN_A_NUMBER}{_PLAIN_YEAR}{_NUMBER_ENDS}",  # 1969
)
_FROM_A_NAME = (
  rf"{_WEEKDAY}{_DAY}\s(?:of\s)?{_MONTH_OF_DATE}{_OF_YEAR}(?!\w)",  # Sunday 20 July 1969
  # July 20 – August 3, 1969
  rf"{_MONTH_OF_DATE}\s{_DAY}{_TO}{_MONTH_OF_DATE}\s{_DAY}{_OF_YEAR}(?!\w)",
  # July 20, 1969; Sunday, July 20; July 20–24, 1969
  rf"(?:{_WEEKDAY})?{_MONTH_OF_DATE}\s{_DAY}(?:{_TO}{_DAY})?{_OF_YEAR}(?!\w)",
  rf"{_MONTH}{_TO}{_MONTH},?\s(?:of\s)?{_YEAR}\b{_ERA}",  # May–July 1940
  rf"{_MONTH_OF_DATE},?\s(?:of\s)?{_YEAR}\b{_ERA}",  # July 1969
  rf"{_MONTH}(?!\w)(?<!May)(?<!March)",  # July
  rf"(?:AD|A\.D\.)\s?\d{{1,4}}(?:{_TO}\d{{1,4}})?\b",  # AD 70
)
_FROM_A_WORD = (
  _CENTURIES.format(ordinal=_ORDINAL_WORD),  # nineteenth century
  rf"(?i:spring|summer|autumn|fall|winter)\s(?:of\s)?{_PLAIN_YEAR}(?:[–/-]\d{{2,4}})?\b",
  rf"(?<=\b[Tt]he )(?i:{_TENS})\b",  # the sixties
  rf"(?i:nineteen|eighteen)[ -](?i:{_TENS})\b",  # nineteen-sixties
)
# The lookaheads rule out whole groups of alternatives at once, which is several times faster.
DATE = re.compile(
  rf"(?<!\w)(?:(?=\d)(?:{'|'.join(_FROM_A_DIGIT)})|(?=[A-Z])(?:{'|'.join(_FROM_A_NAME)})"
  rf"|(?=[aefnstwAEFNSTW])(?:{'|'.join(_FROM_A_WORD)})|['’]\d0s\b)"
)
# The character before that of a possible date. Patterns that begin with a set of characters are
# searched for many times faster than others, hence this one, NUMBER and NAME.
_BEFORE_DATE = re.compile(
  r"\W(?=\d|['’]\d|[A-Z](?:a[nrty]|eb|pr|u[glne]|ep|ct|ov|e[cd]|on|hu|ri|\.?D)"
  r"|[aefnstwAEFNSTW](?i:irs|eco|hir|our|if|ix|eve|igh|in[et]|en|lev|we[ln]|or|pri|umm|utu|all|int))"
)
NUMBER = re.compile(r"\d(?<![\w.,]\d)\d*(?:,\d{3})*(?:\.\d+)?(?![\w])")
_UPPER = "".join(c for c in map(chr, range(0x250)) if c.isupper())
_INITIALS = r"(?<=[A-Z])\.(?:(?:[A-Z]\.)+|(?=\s[A-Z]))"  # U.S.; the J. of J. Smith
_NAME_WORD = rf"[{_UPPER}](?<!\w.)(?:{_INITIALS}|(?:[\w'’]|-(?=\w))*)"
_CONNECTOR = r"(?:of|the|de|la|le|du|van|von|der|den|da|di|del|al|el|and)"
NAME = re.compile(rf"{_NAME_WORD}(?:\s(?:{_CONNECTOR}\s){{0,2}}{_NAME_WORD})*")

# Words that are capitalised only because they begin a sentence.
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
  names = []
  for match in NAME.finditer(text):
    start, limit = match.span()
    names.append((start + _sentence_starters(match.group()), limit))
  spans = with_gaps_filled(list(_dates(text)), names)
  numbers = [match.span() for match in NUMBER.finditer(text)]
  return to_byte_offsets(text, with_gaps_filled(spans, numbers))


def find_dates(text: str) -> list[tuple[int, int]]:
  """Returns byte offsets `(start, limit)` of dates, in order; none overlap."""
  return to_byte_offsets(text, list(_dates(text)))


def _dates(text: str) -> Iterator[tuple[int, int]]:
  """Yields the matches of `DATE`."""
  limit = 0
  for before in _BEFORE_DATE.finditer(" " + text):
    if before.start() >= limit and (match := DATE.match(text, before.start())):
      limit = match.end()
      yield match.span()


def with_gaps_filled(
  spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> list[tuple[int, int]]:
  """Adds the others that are not empty and overlap no span; both lists ascend without overlaps."""
  kept, place = [], 0
  for start, limit in others:
    while place < len(spans) and spans[place][1] <= start:
      place += 1
    if start < limit and (place == len(spans) or limit <= spans[place][0]):
      kept.append((start, limit))
  return sorted(spans + kept)


def merge_spans(*groups: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
  """Returns the spans of all groups in order, keeping the longer of two that overlap."""
  taken: list[tuple[int, int]] = []
  spans = [span for group in groups for span in group]
  for start, limit in sorted(spans, key=lambda span: span[0] - span[1]):
    place = bisect.bisect(taken, (start, limit))
    after_the_one_before = place == 0 or taken[place - 1][1] <= start
    if after_the_one_before and (place == len(taken) or limit <= taken[place][0]):
      taken.insert(place, (start, limit))
  return taken


@functools.lru_cache(2**15)
def _sentence_starters(name: str) -> int:
  """Returns the number of leading characters that are not part of a name."""
  rest = name
  while rest:
    word, *after = rest.split(maxsplit=1)
    if word.lower().strip(".'’") not in _SENTENCE_STARTERS:
      break
    rest = "".join(after)
  return len(name) - len(rest)
