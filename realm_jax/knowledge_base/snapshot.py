"""What a knowledge base has at one commit."""

import dataclasses
import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.index import fusion
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.index.kth_best import kth_best
from realm_jax.knowledge_base.commits import Commit, Ranking
from realm_jax.knowledge_base.fields import Where, selects_missing
from realm_jax.knowledge_base.hits import Hit
from realm_jax.knowledge_base.segment import Segment
from realm_jax.text.analysis import Analyzer


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a document is: the number of its segment and its row there."""

  segment: int
  row: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
  """The segments of a commit, opened; safe to use from several threads.

  Attributes:
    embed: Returns the embedding `[E]` of a question; None searches by words alone.
  """

  commit: Commit
  segments: tuple[Segment, ...]
  embed: Callable[[str], np.ndarray] | None = None

  @functools.cached_property
  def live(self) -> tuple[np.ndarray, ...]:
    """Which documents of each segment are not deleted, as bool `[D]`."""
    masks = []
    for segment, entry in zip(self.segments, self.commit.segments, strict=True):
      mask = np.ones(segment.num_documents, bool)
      mask[[*entry.deleted]] = False
      masks.append(mask)
    return tuple(masks)

  @functools.cached_property
  def live_N(self) -> np.ndarray:
    """Which passages of all segments are of live documents."""
    return self._passages(self.live)

  @property
  def num_documents(self) -> int:
    return sum(map(int, map(np.count_nonzero, self.live)))

  @property
  def num_passages(self) -> int:
    return int(np.count_nonzero(self.live_N))

  def find(self, ids: Sequence[str]) -> list[Place | None]:
    """Returns where each document is; None if there is none."""
    ids = [*map(str, ids)]  # documents may be given numbers as ids
    places: list[Place | None] = [None] * len(ids)
    for number, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
      for i, row in enumerate(segment.rows(ids).tolist()):
        if row >= 0 and live[row]:
          places[i] = Place(number, row)
    return places

  def documents(self, ranks: slice) -> list[Place]:
    """Returns documents by their rank in an order that changes only with the commit."""
    return [Place(*pair) for pair in self._documents_Dx2[ranks].tolist()]

  @functools.cached_property
  def _documents_Dx2(self) -> np.ndarray:
    """Segment and row of every live document, new segments first."""
    rows = [np.flatnonzero(live)[::-1] for live in self.live]
    pairs = [np.stack([np.full_like(r, number), r], axis=1) for number, r in enumerate(rows)]
    return np.concatenate([np.zeros((0, 2), np.int64), *pairs[::-1]])

  @functools.cached_property
  def fields(self) -> dict[str, Any]:
    """The fields of live documents by name, each with a value that one has."""
    pairs = zip(self.segments, self.live, strict=True)
    return {name: value for segment, live in pairs for name, value in segment.fields.examples(live)}

  def document(self, place: Place) -> Document:
    """Returns a document; its text is that of its passages."""
    segment, row = self.segments[place.segment], place.row
    passages = range(*segment.first_passages[row : row + 2].tolist())
    return Document(
      id=segment.ids[row],
      title=segment.titles[row],
      text="\n".join(segment.texts[passage] for passage in passages),
      fields=segment.fields.row(row),
    )

  def scores(self, question: str, *, by: Ranking | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Scores every passage, deleted ones included.

    Args:
      by: What to rank by; None takes that of the settings. Without an encoder there are only words.

    Returns:
      float32 `[N]`, and which passages are found at all: all, or by words those that share one.
    """
    if not self.segments:
      return np.zeros(0, np.float32), np.zeros(0, bool)
    by = by or self.commit.settings.ranking
    if self.embed is None or by == "words":
      words_N = self._bm25.scores(question)
      return words_N, words_N > 0
    question_E = self.embed(question)
    scores_N = np.concatenate([segment.inner_products(question_E) for segment in self.segments])
    if by == "fused":
      fused_N = fusion.fuse_scores(scores_N, self._bm25.scores(question), sample=self.live_N)
      # Rounded, so that ties do not depend on the order in which terms were added.
      scores_N = fused_N.astype(np.float32)
    return scores_N, np.ones(len(scores_N), bool)

  def words_of(self, question: str) -> Callable[[str], bool]:
    """Returns a function that tells whether a word is one of the question's, inflected or not."""
    if not self.segments:  # nor languages
      return lambda word: False
    terms = {*self._analyzer.terms(question)}
    return functools.cache(lambda word: not terms.isdisjoint(self._analyzer.terms(word)))

  @functools.cached_property
  def _analyzer(self) -> Analyzer:
    return Analyzer(self.commit.settings.languages)

  @functools.cached_property
  def _bm25(self) -> Bm25Retriever:
    return Bm25Retriever([segment.postings for segment in self.segments], live=self.live_N)

  def matching(self, where: Where) -> np.ndarray:
    """Returns which passages are of live documents that satisfy all conditions, bool `[N]`.

    Raises:
      ValueError: If no document has one of the fields, and its condition needs it.
    """
    if not where:
      return self.live_N
    if not isinstance(where, Mapping):
      raise ValueError(f"where={where!r:.60}; give a mapping of fields, such as {{'year': 1958}}")
    for name, condition in where.items():
      if name not in self.fields and not selects_missing(name, condition):
        listed = ", ".join(sorted(self.fields)) or "none"
        raise ValueError(f"where: no document has a field {name!r}; there are: {listed}")
    return self._passages(
      [
        live & segment.fields.matching(where, segment.num_documents)
        for segment, live in zip(self.segments, self.live, strict=True)
      ]
    )

  def best(self, scores_N: np.ndarray, mask_N: np.ndarray, k: int) -> list[Hit]:
    """Returns the best passages; ties go to the first id."""
    rows = np.flatnonzero(mask_N)
    scores = scores_N[rows]
    if k < len(rows):
      rows = rows[scores >= kth_best(scores, k)]

    def order(row: int) -> tuple[float, str, int]:
      place, number = self.place(row)
      return -scores_N[row], self.id(place), number

    best = heapq.nsmallest(k, rows.tolist(), key=order)
    return [self.hit(row, score=float(scores_N[row])) for row in best]

  def document_ids(self, question: str, k: int, *, by: Ranking) -> list[str]:
    """Returns the ids of the documents of the best passages, at most k, best first."""
    scores_N, found_N = self.scores(question, by=by)
    hits = self.best(scores_N, found_N & self.live_N, 10 * k)
    return [*dict.fromkeys(hit.id for hit in hits)][:k]

  def hit(self, passage: int, *, score: float = 0.0) -> Hit:
    """Returns a passage as it is found."""
    place, number = self.place(passage)
    segment = self.segments[place.segment]
    return Hit(
      score=score,
      id=segment.ids[place.row],
      title=segment.titles[place.row],
      text=segment.texts[int(segment.first_passages[place.row]) + number],
      passage=number,
      fields=segment.fields.row(place.row),
    )

  def id(self, place: Place) -> str:
    return self.segments[place.segment].ids[place.row]

  def place(self, passage: int) -> tuple[Place, int]:
    """Returns the document of a passage, and its number there."""
    number = int(np.searchsorted(self._firsts, passage, side="right")) - 1
    row = passage - int(self._firsts[number])
    document = int(self.segments[number].documents_N[row])
    return Place(number, document), row - int(self.segments[number].first_passages[document])

  @functools.cached_property
  def _firsts(self) -> np.ndarray:
    return np.cumsum([0, *(segment.num_passages for segment in self.segments)])

  def _passages(self, masks: Sequence[np.ndarray]) -> np.ndarray:
    parts = [s.of_passages(mask) for s, mask in zip(self.segments, masks, strict=True)]
    return np.concatenate([np.zeros(0, bool), *parts])
