"""Finds salient spans in any language, with the statistics of a corpus instead of a tagger.

Salient are dates, numbers, names where capitals mean names, words of another alphabet, and rare
terms: words, and pairs of words that attract each other (by pointwise mutual information), that the
text or the corpus repeats but few passages have. The rarer and the more often a term occurs in the
text, the earlier it is taken; of n words at most n / 8 become spans of this kind.
"""

import collections
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

from realm_jax.corpus.sentences import to_byte_offsets
from realm_jax.data import salient_spans
from realm_jax.data.salient_spans import with_gaps_filled
from realm_jax.text import analysis, detection, words

_UNIT = 150  # words among which a term counts once, about a passage
_COMMON_SHARE, _COMMON_NUMBER = 0.04, 3  # words of more units are no terms
_LEAST_INFORMATION = 5.0  # bits by which the words of a pair predict each other
_WORDS_OF_A_SPAN = 6
_WORDS_PER_SPAN = 8
_OCCURRENCES = 3  # of a term in a text that become spans
_NEVER_REPEATED = 0.5  # weight of terms that nothing repeats

_NOUNS_ARE_CAPITALISED = ("de", "lb", "nds")  # there capitals do not tell names
_CAPITALISED = r"[\p{Lu}\p{Lt}][\p{L}\p{M}\p{Nd}'’-]*"
_CAPITALS = regex.compile(rf"(?<![\p{{L}}\p{{M}}\p{{Nd}}]){_CAPITALISED}(?:\s{_CAPITALISED})*")
_LATIN = r"\p{Script=Latin}[\p{Script=Latin}\p{M}\p{Nd}&'’-]*"
_LATINS = regex.compile(rf"{_LATIN}(?:\s{_LATIN})*")
_SENTENCE_ENDS = regex.compile(r"(?:^|[.!?…:\n])[\s“\"«„(—–-]*$")
_DATE = regex.compile(
  r"\p{Nd}+\s?年代?(?:\s?\p{Nd}+\s?月(?:\s?\p{Nd}+\s?日)?)?|\p{Nd}+\s?月\s?\p{Nd}+\s?日"
  r"|\p{Nd}+년(?:\s\p{Nd}+월(?:\s\p{Nd}+일)?)?|\p{Nd}+월\s\p{Nd}+일"
  # 7 февраля 2016, 7. Februar 2016, 7 de febrero de 2016
  r"|(?<![\p{L}\p{Nd}.,])\p{Nd}{1,2}[.º]?\s(?:de\s)?\p{L}[\p{L}\p{M}]+\.?,?\s(?:de\s)?\p{Nd}{4}"
  r"(?!\p{Nd})"
)
_NUMBER = regex.compile(r"(?<![\p{L}\p{M}\p{Nd}])\p{Nd}+(?:[.,٫٬]\p{Nd}+)*(?:\s?[%٪％])?")

Span = tuple[int, int]


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
    self._words = analysis.Words(language)
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
      [match.span() for match in _DATE.finditer(text)],
      self._names(text, terms),
      [match.span() for match in _NUMBER.finditer(text)],
      self._rare(text, terms),
    ):
      kept = with_gaps_filled(kept, spans)
    return kept

  def _terms(self, text: str) -> list[_Term]:
    return [_Term(self._words.stem(text[a:b]), a, b) for a, b in words.word_spans(text)]

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
        (text for text in texts if detection.language_of(text, among=languages) == language),
      )
      for language in languages
      if language != "en"
    }

  def __call__(self, text: str, language: str) -> list[Span]:
    """Returns the byte offsets `(start, limit)` of spans, in order; none overlap."""
    if language == "en":
      return salient_spans.find_salient_spans(text)
    return to_byte_offsets(text, self._rare[language].find(text))
