"""BM25, the sparse baseline, which ranks passages by the rare words they share with a question.

A passage's score sums over the question's terms, and with a smaller weight over pairs of adjacent
ones (Robertson and Zaragoza 2009, in Lucene's form):

  score(q, d) = Σ_{w in q} idf(w) tf(w, d) / (tf(w, d) + k1 (1 - b + b |d| / mean |d|))
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from realm_jax.index.kth_best import kth_best
from realm_jax.index.postings import Postings, languages_of, prefixes_of
from realm_jax.text import detection, wordpieces
from realm_jax.text.analysis import Analyzer

if TYPE_CHECKING:
  from realm_jax.devices import datatypes


_Part = tuple[int, np.ndarray, np.ndarray]
_ROWS_AT_ONCE = 2**13  # fewer are scored faster than bounds are compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bm25Config:
  """Settings of BM25.

  Attributes:
    k1: Saturation of repeated terms.
    b: Strength of the length normalisation.
    pair_weight: Weight of pairs of adjacent terms relative to single ones; 0 ignores pairs.
    drop_question_words: Whether words such as "who" and "many" in a question are ignored; texts
      keep them. They are known for English.
  """

  k1: float = 1.2
  b: float = 0.5
  pair_weight: float = 0.15
  drop_question_words: bool = True


class Bm25Retriever:
  """Searches texts by their words.

  Frequencies and lengths are those of the live texts, so scores are those of an index of them
  alone.

  Args:
    segments: The texts; their ids are consecutive over the segments.
    live: Which texts to search, bool `[N]`; None searches all.
    ids: The id of each text, `[N]`, different for those that are live; None numbers them.
  """

  def __init__(
    self,
    segments: Sequence[Postings],
    *,
    live: np.ndarray | None = None,
    ids: np.ndarray | None = None,
    config: Bm25Config = Bm25Config(),
  ):
    self._segments, self._config = [*segments], config
    self._analyzer = Analyzer(languages := languages_of(segments))
    self._ignored = {
      language: self._analyzer.idle(language, question_words=config.drop_question_words)
      for language in languages
    }
    lengths_N = np.concatenate([np.diff(segment.starts) - 1 for segment in segments])
    language_N = np.concatenate([segment.language_among(languages) for segment in segments])
    self._live_N = np.ones(len(lengths_N), bool) if live is None else np.asarray(live, bool)
    self._firsts = np.cumsum([0, *map(len, segments)]).tolist()
    self._ids_N = ids
    self._num_live = np.bincount(language_N[self._live_N], minlength=len(languages))
    mean_length = max(1.0, lengths_N[self._live_N].sum() / max(1, self._num_live.sum()))
    relative_N = (lengths_N / mean_length).astype(np.float32)
    self._saturation_N = config.k1 * (1 - config.b + config.b * relative_N)
    self._least_saturation = float(self._saturation_N.min(initial=np.inf))
    self._saturation_N[~self._live_N] = np.inf  # whatever is not live scores 0
    dead = np.flatnonzero(~self._live_N).astype(np.int32)
    edges = np.searchsorted(dead, self._firsts).tolist()
    # The rows in each segment that are not live.
    self._dead = [
      dead[a:b] - np.int32(first)
      for a, b, first in zip(edges, edges[1:], self._firsts, strict=False)
    ]
    self._idle: list[np.ndarray] = []  # zeros `[N]`, as many as threads have searched at once

  @property
  def num_passages(self) -> int:
    return len(self._live_N)

  def scores(self, question: str) -> np.ndarray:
    """Returns the score of every text, float32 `[N]`.

    Among several languages a term counts as rare as it is among texts of the question's language,
    because other languages make its frequent words look rare.
    """
    scores_N = np.zeros(self.num_passages, np.float32)
    for entry in self._entries(question):
      self._add(scores_N, [entry])
    return scores_N

  def best(
    self, question: str, k: int, *, matching: Callable[[np.ndarray], np.ndarray] | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the best texts that share a word with a question.

    It skips texts that cannot be among the best (MaxScore, Turtle and Flood 1995): terms are scored
    by how rare they are, until what remains cannot lift a text without the terms so far among the
    best k. Scores are those of `scores` to the last bit.

    Args:
      matching: Returns which of some texts `[R]` to search, as bool `[R]`.

    Returns:
      The rows `[R]` of the best k texts and of those that score as the k-th, ascending, and their
      scores.
    """
    entries = self._entries(question)
    rarest, rest = entries, [0.0] * (len(entries) + 1)
    in_order = sum(entry.size for entry in entries) <= _ROWS_AT_ONCE
    if not in_order:
      rarest = sorted(entries, key=lambda entry: entry.size)
      bounds = [entry.bound(self._least_saturation) for entry in reversed(rarest)]
      rest = [0.0, *itertools.accumulate(bounds)][::-1]
    # Sums in another order differ by less.
    slack = (len(entries) + 4) * 2.0**-22 * rest[0]
    try:
      scores_N = self._idle.pop()
    except IndexError:
      scores_N = np.zeros(self.num_passages, np.float32)
    touched: list[np.ndarray] = [np.zeros(0, np.intp)]
    threshold, done, num_scored = 0.0, 0, 0
    while done < len(entries) and threshold <= rest[done] + slack:
      end, size = done, 0
      while end == done or (end < len(entries) and size + rarest[end].size <= _ROWS_AT_ONCE):
        size += rarest[end].size
        end += 1
      rows = self._add(scores_N, rarest[done:end], matching)
      touched.append(rows)
      num_scored += len(rows)
      threshold = max(threshold, _kth_distinct(scores_N, rows, k, most=end - done))
      done = end
    least = threshold - rest[done] - slack
    rows = _distinct(np.concatenate([r[scores_N.take(r) >= least] for r in touched]))
    scores = scores_N[rows]
    if num_scored > self.num_passages / 16:
      scores_N.fill(0)
    else:
      for scored in touched:
        scores_N[scored] = 0
    self._idle.append(scores_N)
    if not in_order:
      for entry, remaining in zip(rarest[done:], rest[done:], strict=False):
        if k < len(rows):
          threshold = max(threshold, float(kth_best(scores, k)))
          likely = scores >= threshold - remaining - slack
          rows, scores = rows[likely], scores[likely]
        scores += self._scores_of(entry, rows)
      if k < len(rows):
        rows = rows[scores >= kth_best(scores, k) - slack]
      scores = np.zeros(len(rows), np.float32)
      for entry in entries:
        scores += self._scores_of(entry, rows)
    found = scores > 0
    if k < np.count_nonzero(found):
      found = scores >= kth_best(scores, k)
    return rows[found], scores[found]

  def _entries(self, question: str) -> list[_Entry]:
    """Returns the terms of a question, then its pairs, that texts have."""
    languages = self._analyzer.languages
    language = detection.language_of(question, among=languages)
    num_texts, idle = int(self._num_live[languages.index(language)]), self._ignored[language]
    counts, pairs = collections.Counter[str](), collections.Counter[tuple[str, ...]]()
    for terms in self._analyzer.in_each_language(question):
      terms = [term for term in terms if term not in idle] or terms
      counts |= collections.Counter(terms)
      pairs |= collections.Counter(zip(terms, terms[1:], strict=False))
    spellings = [term.encode() for term in counts]
    prefixes = prefixes_of(spellings)
    segments = []
    for first, dead, segment in zip(self._firsts, self._dead, self._segments, strict=False):
      places = zip(counts, segment.places(spellings, prefixes), strict=True)
      if there := {term: place for term, place in places if place is not None}:
        segments.append((first, dead, segment, there))
    keys: list[tuple[str, ...]] = [(term,) for term in counts]
    weights = [float(count) for count in counts.values()]
    if self._config.pair_weight:
      keys += pairs
      weights += [count * self._config.pair_weight for count in pairs.values()]
    entries = []
    for key, weight in zip(keys, weights, strict=True):
      parts, frequency = [], 0
      for first, dead, segment, there in segments:
        if all(map(there.__contains__, key)):
          at = [there[term] for term in key]
          find = segment.texts_of if len(at) == 1 else segment.texts_of_pair
          rows, occurrences = find(*at)
          if len(rows):
            parts.append((first, rows, occurrences))
            frequency += len(rows) - self._num_dead(first, dead, rows)
      if frequency:
        idf = math.log(1 + (max(num_texts - frequency, 0) + 0.5) / (frequency + 0.5))
        dtype = np.float32 if len(key) == 1 else np.float64
        size = sum(len(rows) for _, rows, _ in parts)
        entries.append(_Entry(np.float32(weight * idf), parts, dtype, size))
    return entries

  def _num_dead(self, first: int, dead: np.ndarray, rows: np.ndarray) -> int:
    """Returns how many of some rows of the segment of a text, ascending, are not live."""
    if len(dead) > len(rows) / 16:
      return len(rows) - int(np.count_nonzero(self._live_N[first:][rows]))
    if not len(dead):
      return 0
    return int(np.count_nonzero(rows.take(rows.searchsorted(dead), mode="clip") == dead))

  def _add(
    self,
    scores_N: np.ndarray,
    entries: Sequence[_Entry],
    matching: Callable[[np.ndarray], np.ndarray] | None = None,
  ) -> np.ndarray:
    """Adds the scores of terms, then of pairs; returns the rows that have them, repeated."""
    groups = ([e for e in entries if e.dtype == dtype] for dtype in (np.float32, np.float64))
    added = [self._add_group(scores_N, group, matching) for group in groups if group]
    return np.concatenate(added) if len(added) > 1 else added[0]

  def _add_group(
    self,
    scores_N: np.ndarray,
    entries: Sequence[_Entry],
    matching: Callable[[np.ndarray], np.ndarray] | None,
  ) -> np.ndarray:
    parts = [part for entry in entries for part in entry.parts]
    rows = np.concatenate(
      [rows + np.int32(first) if first else rows for first, rows, _ in parts], dtype=np.intp
    )
    counts = np.concatenate([counts for _, _, counts in parts], dtype=entries[0].dtype)
    weights = np.repeat([entry.weight for entry in entries], [entry.size for entry in entries])
    if matching is not None:
      found = matching(rows)
      rows, counts, weights = rows[found], counts[found], weights[found]
    scores = counts + self._saturation_N.take(rows)
    np.divide(counts, scores, out=scores)
    scores *= weights
    np.add.at(scores_N, rows, scores)  # one after the other, and faster than indexing
    return rows

  def _scores_of(self, entry: _Entry, rows: np.ndarray) -> np.ndarray:
    """Returns what a term or pair adds to the scores of some rows, ascending."""
    counts = np.zeros(len(rows), entry.dtype)
    for first, there, occurrences in entry.parts:
      wanted = (rows - first).astype(np.int32)
      at = there.searchsorted(wanted)
      has = there.take(at, mode="clip") == wanted
      counts += occurrences.take(at, mode="clip") * has
    return entry.weight * (counts / (counts + self._saturation_N[rows]))

  def edited(self, *, hidden: Collection[int], written: Mapping[int, str]) -> Bm25Retriever:
    """Returns a retriever of other texts.

    Args:
      hidden: Ids to exclude.
      written: Further texts by id, which may be hidden ids.
    """
    added = Postings.build(written.values(), languages=self._analyzer.languages)
    live = np.append(self._live_N, np.ones(len(written), bool))
    live[[*hidden]] = False
    return Bm25Retriever(
      [*self._segments, added],
      live=live,
      ids=np.append(np.arange(self.num_passages), np.array([*written], np.int64)),
      config=self._config,
    )

  @property
  def live_I(self) -> np.ndarray:
    """Which ids are of texts to search, bool `[largest id + 1]`."""
    return self._by_id(self._live_N)

  def scores_by_id(self, question: str) -> np.ndarray:
    """Returns the score of every id, float32 `[largest id + 1]`. `[MASK]` is no word."""
    return self._by_id(self.scores(question.replace(wordpieces.MASK, " ")))

  def _by_id(self, values_N: np.ndarray) -> np.ndarray:
    if self._ids_N is None:
      return values_N
    values_I = np.zeros(self._ids_N.max() + 1, values_N.dtype)
    values_I[self._ids_N[self._live_N]] = values_N[self._live_N]
    return values_I

  def retrieve(self, questions: Sequence[str], *, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages that share a word with each question, best first.

    Ties are broken by lower id.
    """
    from realm_jax.devices import datatypes  # late, because `scores` does not need JAX

    ids_BxK = np.full((len(questions), k), datatypes.MISSING_PASSAGE_ID, np.int32)
    scores_BxK = np.full((len(questions), k), -np.inf, np.float32)
    for row, question in enumerate(questions):
      rows, scores = self.best(question.replace(wordpieces.MASK, " "), k)
      ids = rows if self._ids_N is None else self._ids_N[rows]
      best = np.lexsort((ids, -scores))[:k]
      ids_BxK[row, : len(best)], scores_BxK[row, : len(best)] = ids[best], scores[best]
    return datatypes.SearchResults(ids_BxK, scores_BxK)


class _Entry(NamedTuple):
  """A term or pair of a question.

  Attributes:
    parts: For segments that have it, the number of their first text, rows and counts.
    dtype: What its scores are computed in before they are added.
    size: Texts that have it, deleted ones included.
  """

  weight: np.float32
  parts: list[_Part]
  dtype: type[np.floating]
  size: int

  def bound(self, least_saturation: float) -> float:
    """Returns what it adds to the score of a text at most."""
    most = max(float(counts.max()) for _, _, counts in self.parts)
    return float(self.weight) * most / (most + least_saturation)


def _distinct(rows: np.ndarray) -> np.ndarray:
  """Returns rows in order, each once; of few rows faster than `np.unique`."""
  rows = np.sort(rows)
  new = np.ones(len(rows), bool)
  np.not_equal(rows[1:], rows[:-1], out=new[1:])
  return rows[new]


def _kth_distinct(scores_N: np.ndarray, rows: np.ndarray, k: int, *, most: int) -> float:
  """Returns the k-th best score of rows of which each occurs `most` times at most; 0 for none."""
  if len(rows) < k:
    return 0.0
  scores = scores_N.take(rows)
  if k * most < len(rows):
    rows = rows[scores >= kth_best(scores, k * most)]
  scores = scores_N[_distinct(rows)]
  return float(np.partition(scores, -k)[-k]) if len(scores) >= k else 0.0


def best_places(scores_N: np.ndarray, k: int) -> np.ndarray:
  """Returns where the `k` highest scores are, best first; ties go to the lower place."""
  found = np.arange(len(scores_N))
  if k < len(found):
    found = np.flatnonzero(scores_N >= kth_best(scores_N, k))
  return found[np.argsort(-scores_N[found], kind="stable")][:k]
