"""BM25, the sparse baseline, which ranks passages by the rare words they share with a question.

A passage's score sums over the question's terms, and with a smaller weight over pairs of adjacent
ones (Robertson and Zaragoza 2009, in Lucene's form):

  score(q, d) = Σ_{w in q} idf(w) tf(w, d) / (tf(w, d) + k1 (1 - b + b |d| / mean |d|))
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from realm_jax.index.kth_best import kth_best
from realm_jax.index.postings import Postings
from realm_jax.text import wordpieces
from realm_jax.text.analysis import Analyzer

if TYPE_CHECKING:
  from realm_jax.devices import datatypes


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

  Raises:
    ValueError: If segments differ in their languages.
  """

  def __init__(
    self,
    segments: Sequence[Postings],
    *,
    live: np.ndarray | None = None,
    ids: np.ndarray | None = None,
    config: Bm25Config = Bm25Config(),
  ):
    if len(languages := {segment.languages for segment in segments}) != 1:
      raise ValueError(f"segments of the languages {sorted(languages)}; they must be of the same")
    self._segments, self._config = [*segments], config
    self._analyzer = Analyzer(languages.pop())
    self._question_words = {
      language: self._analyzer.question_words(language) if config.drop_question_words else ()
      for language in self._analyzer.languages
    }
    lengths_N = np.concatenate([np.diff(segment.starts) - 1 for segment in segments])
    language_N = np.concatenate([segment.language for segment in segments])
    self._live_N = np.ones(len(lengths_N), bool) if live is None else np.asarray(live, bool)
    self._all_live = bool(self._live_N.all())
    self._ids_N = ids
    self._num_live = np.bincount(language_N[self._live_N], minlength=len(self._analyzer.languages))
    mean_length = max(1.0, lengths_N[self._live_N].sum() / max(1, self._num_live.sum()))
    relative_N = (lengths_N / mean_length).astype(np.float32)
    self._saturation_N = config.k1 * (1 - config.b + config.b * relative_N)

  @property
  def num_passages(self) -> int:
    return len(self._live_N)

  def scores(self, question: str) -> np.ndarray:
    """Returns the score of every text, float32 `[N]`.

    Among several languages a term counts as rare as it is among texts of the question's language,
    because other languages make its frequent words look rare.
    """
    language, terms = self._analyzer.analyze(question)
    num_texts = int(self._num_live[self._analyzer.languages.index(language)])
    dropped = self._question_words[language]
    terms = [term for term in terms if term not in dropped] or terms
    scores_N = np.zeros(self.num_passages, np.float32)
    for term, count in collections.Counter(terms).items():
      self._add(scores_N, (term,), count, num_texts)
    if self._config.pair_weight:
      for pair, count in collections.Counter(zip(terms, terms[1:], strict=False)).items():
        self._add(scores_N, pair, count * self._config.pair_weight, num_texts)
    return scores_N

  def _add(
    self, scores_N: np.ndarray, terms: tuple[str, ...], weight: float, num_texts: int
  ) -> None:
    """Adds the scores of a term or of a pair."""
    parts, first = [], 0
    for segment in self._segments:
      rows, counts = segment.find_pair(*terms) if len(terms) == 2 else segment.find(*terms)
      if not self._all_live:
        live = self._live_N[first : first + len(segment)][rows]
        rows, counts = rows[live], counts[live]
      parts.append((rows + first, counts))
      first += len(segment)
    frequency = sum(len(rows) for rows, _ in parts)
    idf = math.log(1 + (max(num_texts - frequency, 0) + 0.5) / (frequency + 0.5))
    for rows, counts in parts:
      scores_N[rows] += np.float32(weight * idf) * (counts / (counts + self._saturation_N[rows]))

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
      scores_I = self.scores_by_id(question)
      found = np.flatnonzero(scores_I > 0)
      best = found[best_places(scores_I[found], k)]
      ids_BxK[row, : len(best)] = best
      scores_BxK[row, : len(best)] = scores_I[best]
    return datatypes.SearchResults(ids_BxK, scores_BxK)


def best_places(scores_N: np.ndarray, k: int) -> np.ndarray:
  """Returns where the `k` highest scores are, best first; ties go to the lower place."""
  found = np.arange(len(scores_N))
  if k < len(found):
    found = np.flatnonzero(scores_N >= kth_best(scores_N, k))
  return found[np.argsort(-scores_N[found], kind="stable")][:k]
