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
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from realm_jax.corpus.passage_store import PassageStore, titled_text
from realm_jax.foundations import choices
from realm_jax.index.words.postings import Postings, languages_of, open_or_build, prefixes_of
from realm_jax.text import wordpieces
from realm_jax.text.analysis import Analyzer
from realm_jax.text.languages import language_of

if TYPE_CHECKING:
  from realm_jax.devices import datatypes


_Part = tuple[int, np.ndarray, np.ndarray]
_Weight = Annotated[float, choices.Bounds(least=0, most=1000)]
_ROWS_AT_ONCE = 2**13  # fewer are scored faster than bounds are compared
_BLOCK = 256
_FEW = 100  # deleted texts of a segment, whose terms are counted when it is opened


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bm25Config(choices.Checked):
  """Settings of BM25.

  Attributes:
    k1: Saturation of repeated terms; 0 ignores how often a text has a term.
    b: Strength of the length normalisation, from 0 to 1.
    pair_weight: Weight of pairs of adjacent terms relative to single ones; 0 ignores pairs.
  """

  k1: _Weight = 1.2
  b: choices.Share = 0.5
  pair_weight: _Weight = 0.15


class Bm25Retriever:
  """Searches texts by their words.

  Frequencies and lengths are those of the live texts, so scores are those of an index of them
  alone.

  Attributes:
    languages: The languages of the live texts, in which questions are analyzed.

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
    lengths_N = np.concatenate([np.diff(segment.starts) - 1 for segment in segments])
    self._live_N = np.ones(len(lengths_N), bool) if live is None else np.asarray(live, bool)
    self.languages = languages = languages_of(segments, self._live_N)
    self._analyzer = Analyzer(languages)
    self._ignored = {language: self._analyzer.idle(language) for language in languages}
    language_N = np.concatenate([segment.language_among(languages) for segment in segments])
    self._firsts = np.cumsum([0, *map(len, segments)]).tolist()
    self._ids_N = ids
    num_live = np.bincount(language_N[self._live_N], minlength=len(languages))
    self._num_live = dict(zip(languages, num_live.tolist(), strict=True))
    mean_length = max(1.0, lengths_N[self._live_N].sum() / max(1, sum(self._num_live.values())))
    relative_N = (lengths_N / mean_length).astype(np.float32)
    saturation_N = config.k1 * (1 - config.b + config.b * relative_N)
    # Above 0, so that a term that a text does not have adds 0 / s, which is a number.
    self._saturation_N = np.maximum(saturation_N, np.finfo(np.float32).tiny)
    self._least_saturation = float(self._saturation_N.min(initial=np.inf))
    self._saturation_N[~self._live_N] = np.inf  # whatever is not live scores 0
    self._num_dead = [*map(self._dead_counts, self._firsts, segments)]
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
    if entries := self._entries(question):
      self._add(scores_N, entries)
    return scores_N

  def best(
    self,
    question: str,
    k: int,
    *,
    matching: Callable[[np.ndarray], np.ndarray] | None = None,
    also: np.ndarray = np.zeros(0, np.intp),
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the best texts that share a word with a question.

    It skips texts that cannot be among the best (MaxScore, Turtle and Flood 1995): terms are scored
    by how rare they are, until what remains cannot lift a text without the terms so far among the
    best k. Scores are those of `scores` to the last bit.

    Args:
      matching: Returns which of some texts `[R]` to search, as bool `[R]`.
      also: Rows of other texts to score, ascending.

    Returns:
      The rows `[R]` of the best k texts, of those that score as the k-th and of the others,
      ascending, and their scores.
    """
    entries = self._entries(question)
    if not entries:
      return also, np.zeros(len(also), np.float32)
    try:
      scores_N = self._idle.pop()
    except IndexError:
      scores_N = np.zeros(self.num_passages, np.float32)
    if sum(entry.size for entry in entries) <= _ROWS_AT_ONCE:
      scored = self._add(scores_N, entries, matching)
      rows = _candidates(scores_N, scored, k * len(entries))
      scores = scores_N[rows]
      scores_N[scored] = 0
    else:
      rows, scores = self._max_score(scores_N, entries, k, matching)
    self._idle.append(scores_N)
    found = scores > 0
    if k < np.count_nonzero(found):
      found = scores >= kth_best(scores, k)
    rows, scores = rows[found], scores[found]
    if len(also) and len(others := also[~np.isin(also, rows)]):
      added = np.zeros(len(others), np.float32)
      for entry in entries:
        added += self._scores_of(entry, others)
      rows, first = np.unique(np.append(rows, others), return_index=True)
      scores = np.append(scores, added)[first]
    return rows, scores

  def _max_score(
    self,
    scores_N: np.ndarray,
    entries: Sequence[_Entry],
    k: int,
    matching: Callable[[np.ndarray], np.ndarray] | None,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows that include the best, ascending, with their scores.

    Args:
      scores_N: Zeros, before and after.
    """
    rarest = sorted(entries, key=lambda entry: entry.size)
    bounds = [entry.bound(self._least_saturation) for entry in reversed(rarest)]
    rest = [0.0, *itertools.accumulate(bounds)][::-1]
    # Sums in another order differ by less.
    slack = (len(entries) + 4) * 2.0**-22 * rest[0]
    touched: list[np.ndarray] = []
    threshold, done = 0.0, 0
    while done < len(entries) and threshold <= rest[done] + slack:
      end, size = done, 0
      while end == done or (end < len(entries) and size + rarest[end].size <= _ROWS_AT_ONCE):
        size += rarest[end].size
        end += 1
      touched.append(rows := self._add(scores_N, rarest[done:end], matching))
      scores = scores_N[_candidates(scores_N, rows, k * (end - done))]
      if k <= len(scores):
        threshold = max(threshold, float(kth_best(scores, k)))
      done = end
    least = threshold - rest[done] - slack
    rows = _distinct(np.concatenate([r[scores_N.take(r) >= least] for r in touched]))
    scores = scores_N[rows]
    if sum(map(len, touched)) > self.num_passages / 16:
      scores_N.fill(0)
    else:
      for scored in touched:
        scores_N[scored] = 0
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
    return rows, scores

  def num_texts(self, word: str) -> int:
    """Returns how many texts have a word, deleted ones included."""
    return max((entry.size for entry in self._entries(word)), default=0)

  def _entries(self, question: str) -> list[_Entry]:
    """Returns the terms of a question, then its pairs, that texts have."""
    if not self.languages:
      return []
    main = max(self.languages, key=self._num_live.__getitem__)
    language = language_of(question, among=self.languages, main=main)
    num_texts, idle = self._num_live[language], self._ignored[language]
    counts = collections.Counter[tuple[str, ...]]()
    for terms in self._analyzer.in_each_language(question):
      terms = [term for term in terms if term not in idle] or terms
      counts |= collections.Counter([*zip(terms), *itertools.pairwise(terms)])
    keys = sorted(counts, key=len)
    terms = [key[0] for key in keys if len(key) == 1]
    spellings = [term.encode() for term in terms]
    prefixes, segments = prefixes_of(spellings), []
    for first, segment, dead in zip(self._firsts, self._segments, self._num_dead, strict=False):
      places = zip(terms, segment.places(spellings, prefixes), strict=True)
      if there := {term: place for term, place in places if place is not None}:
        segments.append((first, segment, dead, there))
    entries = []
    for key in keys if self._config.pair_weight else keys[: len(terms)]:
      parts, frequency, size = [], 0, 0
      for first, segment, dead, there in segments:
        places = tuple(map(there.get, key))
        if None in places:
          continue
        rows, occurrences = segment.texts_of(*places)
        if len(rows):
          parts.append((first, rows, occurrences))
          size += len(rows)
          if dead is None:
            frequency += int(np.count_nonzero(self._live_N[first:][rows]))
          else:
            frequency += len(rows) - dead.get(places, 0)
      if frequency > 0:
        idf = math.log(1 + (max(num_texts - frequency, 0) + 0.5) / (frequency + 0.5))
        weight = counts[key] * (1 if len(key) == 1 else self._config.pair_weight)
        entries.append(_Entry(np.float32(weight * idf), parts, size))
    return entries

  def _dead_counts(self, first: int, segment: Postings) -> Mapping[tuple[int, ...], int] | None:
    """Returns how many texts with a term or pair are not live; None if they are many."""
    dead = np.flatnonzero(~self._live_N[first : first + len(segment)]).tolist()
    if len(dead) > _FEW:
      return None
    of_texts = map(segment.terms_of, dead)
    keys = ({*zip(terms), *itertools.pairwise(terms)} for terms in of_texts)
    return collections.Counter(itertools.chain.from_iterable(keys))

  def _add(
    self,
    scores_N: np.ndarray,
    entries: Sequence[_Entry],
    matching: Callable[[np.ndarray], np.ndarray] | None = None,
  ) -> np.ndarray:
    """Adds the scores of terms and pairs; returns the rows that have them, repeated."""
    parts = [part for entry in entries for part in entry.parts]
    rows = np.concatenate(
      [rows + np.int32(first) if first else rows for first, rows, _ in parts], dtype=np.intp
    )
    counts = np.concatenate([counts for _, _, counts in parts], dtype=np.float32)
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
    counts = np.zeros(len(rows), np.float32)
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
    size: Texts that have it, deleted ones included.
  """

  weight: np.float32
  parts: list[_Part]
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


def _candidates(scores_N: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
  """Returns the distinct rows among so many with the highest scores, ascending."""
  if count < len(rows):
    scores = scores_N.take(rows)
    rows = rows[scores >= kth_best(scores, count)]
  return _distinct(rows)


def kth_best(scores_N: np.ndarray, k: int) -> np.floating:
  """Returns the k-th highest of at least k scores, faster than a selection among all of them."""
  # The best scores of k blocks are k scores, so the k-th best of all is no lower than their lowest.
  best = np.maximum.reduceat(scores_N, np.arange(0, len(scores_N), _BLOCK))
  if k < len(best):
    scores_N = scores_N[scores_N >= np.partition(best, -k)[-k]]
  return np.partition(scores_N, -k)[-k]


def best_places(scores_N: np.ndarray, k: int) -> np.ndarray:
  """Returns where the `k` highest scores are, best first; ties go to the lower place."""
  found = np.arange(len(scores_N))
  if k < len(found):
    found = np.flatnonzero(scores_N >= kth_best(scores_N, k))
  return found[np.argsort(-scores_N[found], kind="stable")][:k]


def open_bm25(store: PassageStore) -> Bm25Retriever:
  """Opens BM25 over a corpus, titles included, indexed once and kept in its directory."""
  postings = open_or_build(
    os.path.join(store.local_directory, "bm25"),
    lambda: (titled_text(store, row) for row in range(len(store))),
    identity=store.fingerprint,
    languages=store.metadata.languages,
  )
  return Bm25Retriever([postings])
