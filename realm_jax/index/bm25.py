"""BM25, the sparse baseline, which ranks passages by the rare words they share with a question.

A passage's score is the inner product of the question's word counts and the passage's word weights
(Robertson and Zaragoza 2009, in Lucene's form):

  score(q, d) = Σ_{w in q} idf(w) tf(w, d) / (tf(w, d) + k1 (1 - b + b |d| / mean |d|))
"""

import collections
import dataclasses
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from realm_jax import atomic_files, datatypes
from realm_jax.languages.analysis import Analyzer
from realm_jax.output_kinds import DirectoryKind

_IDENTITY_FILE = "identity.json"
_INDEX = DirectoryKind(name="an index of BM25", files=("*.npy", "*.json"), marks=(_IDENTITY_FILE,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bm25Config:
  """Settings of BM25.

  Attributes:
    k1: Saturation of repeated words.
    b: Strength of the length normalisation.
  """

  k1: float = 1.5
  b: float = 0.75


class Bm25Retriever:
  """Searches texts by their words.

  Args:
    languages: The languages of the texts, which decide what a word is.

  Raises:
    ValueError: If there is no text, or the extra `bm25` is not installed.
  """

  def __init__(
    self,
    texts: Iterable[str],
    *,
    languages: Sequence[str] = ("en",),
    config: Bm25Config = Bm25Config(),
  ):
    self._analyzer = Analyzer(languages)
    self._passages_of: collections.Counter[str] = collections.Counter()
    words = []
    for text in texts:
      language, terms = self._analyzer.analyze(text)
      self._passages_of[language] += 1
      words.append(terms)
    if not words:
      raise ValueError("BM25 needs at least one passage; the corpus has none")
    self._config = config
    self._mean_length = max(1.0, sum(map(len, words)) / len(words))
    self._index = _library().BM25(k1=config.k1, b=config.b)
    self._index.index(words, show_progress=False)

  @classmethod
  def open(
    cls,
    directory: str,
    texts: Callable[[], Iterable[str]],
    *,
    identity: str,
    languages: Sequence[str] = ("en",),
    config: Bm25Config = Bm25Config(),
  ) -> "Bm25Retriever":
    """Memory-maps the index in a directory, after building it if it is missing or outdated.

    Args:
      directory: Where the index is kept. On a read-only disk the index is kept in memory.
      identity: Identifies the corpus; the index of another corpus is replaced.
    """
    wanted = {"identity": identity, "languages": [*languages], **dataclasses.asdict(config)}
    path = os.path.join(directory, _IDENTITY_FILE)
    if os.path.exists(path):
      with open(path, encoding="utf-8") as file:
        kept = json.load(file)
      statistics = kept.pop("statistics", None)
      if kept == wanted:
        retriever = cls.__new__(cls)
        retriever._analyzer = Analyzer(languages)
        retriever._config, retriever._mean_length = config, statistics["mean_length"]
        retriever._passages_of = collections.Counter(statistics["passages_of"])
        retriever._index = _library().BM25.load(directory, mmap=True, show_progress=False)
        return retriever
    logging.info("building the BM25 index in %s", directory)
    retriever = cls(texts(), languages=languages, config=config)
    try:
      with atomic_files.new_directory(directory, kind=_INDEX) as unfinished:
        retriever._index.save(unfinished, show_progress=False)
        statistics = {
          "mean_length": retriever._mean_length,
          "passages_of": retriever._passages_of,
        }
        content = json.dumps({**wanted, "statistics": statistics})
        atomic_files.write_text(os.path.join(unfinished, _IDENTITY_FILE), content)
    except OSError as error:
      logging.warning(
        "cannot save the BM25 index in %s, it will be built again: %s", directory, error
      )
    return retriever

  @property
  def num_passages(self) -> int:
    return self._index.scores["num_docs"]

  def retrieve(
    self,
    questions: Sequence[str],
    *,
    k: int,
    hidden: Collection[int] = (),
    written: Mapping[int, str] | None = None,
  ) -> datatypes.SearchResults:
    """Returns the best `k` passages that share a word with each question, best first.

    Ties are broken by lower id. `[MASK]` is no word.

    Args:
      hidden: Ids to exclude.
      written: Further texts by id; their words keep the rarity that they have in the index.
    """
    hidden_J, written = np.array(sorted(hidden), np.int64), written or {}
    ids_BxK = np.full((len(questions), k), datatypes.MISSING_PASSAGE_ID, np.int32)
    scores_BxK = np.full((len(questions), k), -np.inf, np.float32)
    written_words = [self._analyzer.terms(text) for text in written.values()]
    for row, question in enumerate(questions):
      columns = self._asked(question.replace(datatypes.MASK, " "))
      scores_N = self._scores(columns)
      scores_N[hidden_J] = 0
      own = [self._score(columns, self._columns(text), len(text)) for text in written_words]
      found = np.flatnonzero(scores_N)
      ids = np.concatenate([found, np.array([*written], np.int64)])
      scores = np.concatenate([scores_N[found], np.array(own, np.float32)])
      lowest = np.partition(scores, -k)[-k] if k < len(scores) else 0
      best = np.flatnonzero((scores > 0) & (scores >= lowest))
      best = best[np.lexsort((ids[best], -scores[best]))][:k]
      ids_BxK[row, : len(best)] = ids[best]
      scores_BxK[row, : len(best)] = scores[best]
    return datatypes.SearchResults(ids_BxK, scores_BxK)

  def _asked(self, question: str) -> dict[int, float]:
    """Returns the weight of each word of a question, by column: in one language its count.

    Among several languages a word counts as rare as it is in passages of the question's language,
    because other languages make its frequent words look rare.
    """
    language, words = self._analyzer.analyze(question)
    num_passages = self._passages_of[language]
    return {
      column: count * self._idf(column, num_passages) / self._idf(column, self.num_passages)
      for column, count in self._columns(words).items()
    }

  def _idf(self, column: int, num_passages: int) -> float:
    frequency = float(np.diff(self._index.scores["indptr"][column : column + 2])[0])
    return math.log(1 + (max(num_passages - frequency, 0.0) + 0.5) / (frequency + 0.5))

  def _columns(self, words: Iterable[str]) -> collections.Counter:
    """Counts the words that occur in the index, by column."""
    known = self._index.vocab_dict
    return collections.Counter(known[word] for word in words if word in known)

  def _scores(self, columns: Mapping[int, float]) -> np.ndarray:
    weights = self._index.scores
    scores_N = np.zeros(self.num_passages, np.float32)
    for column, count in columns.items():
      rows = slice(*weights["indptr"][column : column + 2])
      scores_N[weights["indices"][rows]] += count * weights["data"][rows]
    return scores_N

  def _score(self, asked: Mapping[int, float], columns: Mapping[int, int], length: int) -> float:
    """Returns the score of a text that is not in the index."""
    k1, b = self._config.k1, self._config.b
    score = 0.0
    for column in asked.keys() & columns.keys():
      count = columns[column]
      saturated = count / (count + k1 * (1 - b + b * length / self._mean_length))
      score += asked[column] * self._idf(column, self.num_passages) * saturated
    return score


def _library():
  try:
    import bm25s
  except ModuleNotFoundError as error:
    raise ValueError("BM25 needs bm25s: pip install -e '.[bm25]' in the checkout") from error
  bm25s.logger.setLevel("WARNING")
  return bm25s
