"""Finds salient spans in plain text: in English by rule, in other languages with statistics.

In English they are dates, numbers and capitalised names. Guu et al. 2020, section 3.4, take named
entities from a trained tagger and dates from a regular expression. `find_dates` provides the
latter, and `merge_spans` combines both.

In other languages they are dates, numbers, names where capitals mean names, words of another
alphabet, and rare terms: words, and pairs of words that attract each other (by pointwise mutual
information), that the text or the corpus repeats but few passages have. The rarer and the more
often a term occurs in the text, the earlier it is taken; of n words at most n / 8 become spans of
this kind.
"""

import bisect
import collections
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

from realm_jax.text.analysis import Words
from realm_jax.text.languages import language_of
from realm_jax.text.segmentation import to_byte_offsets, word_spans

Span = tuple[int, int]

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
_BMP = [*map(chr, range(2**16))]
_UPPER = "".join(c for c in _BMP if c.isupper() or unicodedata.category(c) == "Lt")
# What is within a word beside letters: combining marks, and where it may be broken or joined.
_MARK = "".join(c for c in _BMP if unicodedata.category(c)[0] == "M") + "\xad\u200c\u200d\u2060"
_INITIALS = rf"\.(?:(?:[{_UPPER}]\.)+|(?=\s[{_UPPER}]))"  # U.S.; the J. of J. Smith
_IN_WORD = rf"[\w'’{_MARK}]|-(?=\w)|&(?=[{_UPPER}])"  # Jean-Luc, AT&T
_NAME_WORD = rf"[{_UPPER}](?<![\w{_MARK}].)[{_MARK}]*(?:{_INITIALS}|(?:{_IN_WORD})*)"
_CONNECTOR = r"(?:of|the|de|la|le|du|van|von|der|den|da|di|del|al|el|and(?!\s(?:the\s)?[A-Z]{2}))"
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


def find_salient_spans(text: str) -> list[Span]:
  """Returns byte offsets `(start, limit)` of dates, names and numbers, in order; none overlap."""
  names = []
  for match in NAME.finditer(text):
    start, limit = match.span()
    names.append((start + _sentence_starters(match.group()), limit))
  spans = with_gaps_filled(list(_dates(text)), names)
  numbers = [match.span() for match in NUMBER.finditer(text)]
  return to_byte_offsets(text, with_gaps_filled(spans, numbers))


def find_dates(text: str) -> list[Span]:
  """Returns byte offsets `(start, limit)` of dates, in order; none overlap."""
  return to_byte_offsets(text, list(_dates(text)))


def _dates(text: str) -> Iterator[Span]:
  """Yields the matches of `DATE`."""
  limit = 0
  for before in _BEFORE_DATE.finditer(" " + text):
    if before.start() >= limit and (match := DATE.match(text, before.start())):
      limit = match.end()
      yield match.span()


def with_gaps_filled(spans: list[Span], others: list[Span]) -> list[Span]:
  """Adds the others that are not empty and overlap no span; both lists ascend without overlaps."""
  kept, place = [], 0
  for start, limit in others:
    while place < len(spans) and spans[place][1] <= start:
      place += 1
    if start < limit and (place == len(spans) or limit <= spans[place][0]):
      kept.append((start, limit))
  return sorted(spans + kept)


def merge_spans(*groups: Iterable[Span]) -> list[Span]:
  """Returns the spans of all groups in order, keeping the longer of two that overlap."""
  taken: list[Span] = []
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
    word = word.strip(".'’")
    # WHO and IT are abbreviations, unless other words are in capitals as well.
    abbreviates = len(word) > 1 and word.isupper() and not "".join(after).split(" ")[0].isupper()
    if abbreviates or word.lower() not in _SENTENCE_STARTERS:
      break
    rest = "".join(after)
  return len(name) - len(rest)


_UNIT = 150  # words among which a term counts once, about a passage
_COMMON_SHARE, _COMMON_NUMBER = 0.04, 3  # words of more units are no terms
_LEAST_INFORMATION = 5.0  # bits by which the words of a pair predict each other
_WORDS_OF_A_SPAN = 6
_WORDS_PER_SPAN = 8
_OCCURRENCES = 3  # of a term in a text that become spans
_NEVER_REPEATED = 0.5  # weight of terms that nothing repeats

_NOUNS_ARE_CAPITALISED = ("de", "lb", "nds")  # there capitals do not tell names
_CAPITALISED = r"[\p{Lu}\p{Lt}][\p{L}\p{M}\p{Nd}\p{Join_Control}\xad'’-]*"
_CAPITALS = regex.compile(rf"(?<![\p{{L}}\p{{M}}\p{{Nd}}]){_CAPITALISED}(?:\s{_CAPITALISED})*")
_LATIN = r"\p{Script=Latin}[\p{Script=Latin}\p{M}\p{Nd}\xad&'’-]*"
_LATINS = regex.compile(rf"{_LATIN}(?:\s{_LATIN})*")
_SENTENCE_ENDS = regex.compile(r"(?:^|[.!?…:\n])[\s“\"«„(—–-]*$")
_DATE_ELSEWHERE = regex.compile(
  r"\p{Nd}+\s?年代?(?:\s?\p{Nd}+\s?月(?:\s?\p{Nd}+\s?日)?)?|\p{Nd}+\s?月\s?\p{Nd}+\s?日"
  r"|\p{Nd}+년(?:\s\p{Nd}+월(?:\s\p{Nd}+일)?)?|\p{Nd}+월\s\p{Nd}+일"
  # 7 февраля 2016, 7. Februar 2016, 7 de febrero de 2016
  r"|(?<![\p{L}\p{Nd}.,])\p{Nd}{1,2}[.º]?\s(?:de\s)?\p{L}[\p{L}\p{M}]+\.?,?\s(?:de\s)?\p{Nd}{4}"
  r"(?!\p{Nd})"
)
_NUMBER_ELSEWHERE = regex.compile(r"(?<![\p{L}\p{M}\p{Nd}])\p{Nd}+(?:[.,٫٬]\p{Nd}+)*(?:\s?[%٪％])?")


class _Term(NamedTuple):
  stem: str
  start: int
  limit: int


class RareSpans:
  """Finds the salient spans of texts in one language.

  Args:
    language: The language, other than English.
    texts: A sample of the corpus.
  """

  def __init__(self, language: str, texts: Iterable[str]):
    self._nouns_are_capitalised = language in _NOUNS_ARE_CAPITALISED
    self._words = Words(language)
    units: collections.Counter[str] = collections.Counter()
    counts: collections.Counter[str] = collections.Counter()
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    self._num_units = 0
    for text in texts:
      terms = self._terms(text)
      counts.update(term.stem for term in terms)
      pairs.update((a.stem, b.stem) for a, b in itertools.pairwise(terms) if _touch(text, a, b))
      for i in range(0, len(terms), _UNIT):
        units.update({term.stem for term in terms[i : i + _UNIT]})
        self._num_units += 1
    total = counts.total()
    self._units = {stem: count for stem, count in units.items() if count > 1}
    self._pairs = frozenset(
      (a, b)
      for (a, b), count in pairs.items()
      if count > 1 and math.log2(count * total / counts[a] / counts[b]) > _LEAST_INFORMATION
    )

  def find(self, text: str) -> list[Span]:
    """Returns character offsets `(start, limit)` of spans, in order; none overlap."""
    terms = self._terms(text)
    kept: list[Span] = []
    for spans in (
      [match.span() for match in _DATE_ELSEWHERE.finditer(text)],
      self._names(text, terms),
      [match.span() for match in _NUMBER_ELSEWHERE.finditer(text)],
      self._rare(text, terms),
    ):
      kept = with_gaps_filled(kept, spans)
    return kept

  def _terms(self, text: str) -> list[_Term]:
    return [_Term(self._words.stem(text[a:b]), a, b) for a, b in word_spans(text)]

  def _is_common(self, stem: str) -> bool:
    most = max(_COMMON_NUMBER, _COMMON_SHARE * self._num_units)
    return self._units.get(stem, 1) > most

  def _names(self, text: str, terms: Sequence[_Term]) -> list[Span]:
    """Returns capitalised words within sentences, or words of the Latin alphabet among others."""
    latin = [match.span() for match in _LATINS.finditer(text)]
    if 2 * sum(limit - start for start, limit in latin) < len(text) / 2:
      names = [span for span in latin if span[1] - span[0] > 1]
    else:
      names = []
    stem_of = {term.start: term.stem for term in terms}
    capitals = []
    for match in _CAPITALS.finditer(text):
      found = list(regex.finditer(r"\S+", match[0]))
      starts = [match.start() + word.start() for word in found]
      while starts and self._is_common(stem_of.get(starts[0], "")):
        starts.pop(0)
      fewest = 1
      if starts == [match.start()] and _SENTENCE_ENDS.search(text, 0, match.start()):
        fewest = 2
      if self._nouns_are_capitalised:
        fewest = 2
      if len(starts) >= fewest and match.end() - starts[0] > 1:
        capitals.append((starts[0], match.end()))
    return with_gaps_filled(capitals, names)

  def _rare(self, text: str, terms: Sequence[_Term]) -> list[Span]:
    """Returns the best spans of rare terms, in order."""
    count = collections.Counter(term.stem for term in terms)
    scored = []
    for run in self._runs(text, terms):
      start, limit = run[0].start, run[-1].limit
      if limit - start < 2 or run[0].stem[0].isdigit():
        continue
      if self._nouns_are_capitalised and not any(text[term.start].isupper() for term in run):
        continue
      repeats = len(run) > 1 or count[run[0].stem] > 1 or run[0].stem in self._units
      score = (1.0 if repeats else _NEVER_REPEATED) * max(
        count[term.stem] * math.log(1 + self._num_units / self._units.get(term.stem, 1))
        for term in run
      )
      scored.append((-score, start, limit, tuple(term.stem for term in run)))
    kept, taken = [], collections.Counter()
    for _, start, limit, stems in sorted(scored):
      taken[stems] += 1
      if taken[stems] <= _OCCURRENCES and len(kept) * _WORDS_PER_SPAN < len(terms):
        kept.append((start, limit))
    return sorted(kept)

  def _runs(self, text: str, terms: Sequence[_Term]) -> Iterator[Sequence[_Term]]:
    """Yields terms that attract each other, without common ones at the ends, and other terms."""
    first = 0
    for i in range(1, len(terms) + 1):
      joined = (
        i < len(terms)
        and i - first < _WORDS_OF_A_SPAN
        and (terms[i - 1].stem, terms[i].stem) in self._pairs
        and _touch(text, terms[i - 1], terms[i])
      )
      if not joined:
        run = list(terms[first:i])
        while run and self._is_common(run[0].stem):
          run.pop(0)
        while run and self._is_common(run[-1].stem):
          run.pop()
        if run:
          yield run
        first = i


def _touch(text: str, first: _Term, second: _Term) -> bool:
  """Returns whether nothing but a space or a hyphen separates two terms."""
  return text[first.limit : second.start] in ("", " ", "-", "·", "・", "‌")


class SpanFinder:
  """Finds the salient spans of a corpus, in each language by its own rules; can be pickled.

  Args:
    languages: The languages of the corpus.
    texts: A sample of the corpus.
  """

  def __init__(self, languages: Sequence[str], texts: Sequence[str]):
    self._rare = {
      language: RareSpans(
        language,
        (text for text in texts if language_of(text, among=languages) == language),
      )
      for language in languages
      if language != "en"
    }

  def __call__(self, text: str, language: str) -> list[Span]:
    """Returns the byte offsets `(start, limit)` of spans, in order; none overlap."""
    if language == "en":
      return find_salient_spans(text)
    return to_byte_offsets(text, self._rare[language].find(text))
