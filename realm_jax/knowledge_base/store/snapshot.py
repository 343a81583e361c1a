"""What a knowledge base has at one commit."""

import bisect
import dataclasses
import functools
import itertools
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.index import fusion
from realm_jax.index.vectors.cells import Moments
from realm_jax.index.words.bm25 import Bm25Retriever, kth_best
from realm_jax.knowledge_base.store.columns import Column, Where, selects_missing
from realm_jax.knowledge_base.store.commits import Commit, Ranking
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.passages import beginning
from realm_jax.knowledge_base.store.segment import Segment
from realm_jax.text.analysis import Analyzer

Matching = Callable[[np.ndarray], np.ndarray]
_BEGINNING = 500  # characters that an example is taken from
_LISTED = 20  # fields that a message names
_COLUMNS_KEPT = 16  # fields that are ready to filter by
_BY_WORDS = 100  # passages whose embeddings are read wherever they are


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a document is: the number of its segment and its row there."""

  segment: int
  row: int


class Ranked(NamedTuple):
  """Passages and their scores, of which words have a share and the encoder has the rest."""

  rows: np.ndarray
  scores: np.ndarray
  of_words: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
  """The segments of a commit, opened; safe to use from several threads.

  Attributes:
    embed: Returns the embedding `[E]` of a question, for `search.ranked`; None searches by words
      alone.
    adapt: Maps it before passages are ranked; past questions are compared without.
  """

  commit: Commit
  segments: tuple[Segment, ...]
  embed: Callable[[str], np.ndarray] | None = None
  adapt: Callable[[np.ndarray], np.ndarray] | None = None

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
    parts = [s.of_passages(mask) for s, mask in zip(self.segments, self.live, strict=True)]
    return np.concatenate([np.zeros(0, bool), *parts])

  @property
  def num_documents(self) -> int:
    return sum(map(int, map(np.count_nonzero, self.live)))

  @property
  def num_passages(self) -> int:
    return int(np.count_nonzero(self.live_N))

  @property
  def summary(self) -> str:
    """How much there is, in words."""
    counts = f"{self.num_documents:,} documents in {self.num_passages:,} passages"
    if self.languages:
      counts += f", language {', '.join(self.languages)}"
    cells = [segment.cells for segment in self.segments if segment.cells is not None]
    probes, number = sum(one.probes for one in cells), sum(len(one.ends) for one in cells)
    reads = f"; a search reads {probes:,} of {number:,} cells of embeddings" if cells else ""
    return f"{counts}{reads}"

  def find(self, ids: Sequence[str]) -> list[Place | None]:
    """Returns where each document is; None if there is none."""
    ids = [*map(str, ids)]  # documents may be given numbers as ids
    places: list[Place | None] = [None] * len(ids)
    for number, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
      for i, row in enumerate(segment.rows(ids).tolist()):
        if row >= 0 and live[row]:
          places[i] = Place(number, row)
    return places

  def missing(self, ids: Iterable[str]) -> set[str]:
    """Returns those of which there is no document."""
    ids = [*ids]
    return {id for id, place in zip(ids, self.find(ids), strict=True) if place is None}

  def file(self, place: Place) -> str:
    """Returns what the file of a document is known by; "" if it is from none."""
    segment = self.segments[place.segment]
    return segment.files[segment.files_D[place.row]]

  def digest(self, place: Place) -> np.ndarray:
    """Returns the digest of a document."""
    return self.segments[place.segment].digests[place.row]

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

  def document(self, place: Place, *, characters: int | None = None) -> Document:
    """Returns a document, or with no more than the beginning of its text."""
    segment, row = self.segments[place.segment], place.row
    texts, size = [], 0
    for passage in range(*segment.first_passages[row : row + 2].tolist()):
      if characters is not None and size >= characters:
        break
      texts.append(segment.gaps[passage] + segment.texts[passage])
      size += len(texts[-1])
    return Document(
      id=segment.ids[row],
      title=segment.titles[row],
      text="".join(texts)[:characters],
      fields=segment.fields.row(row),
      outline=segment.outline(row) if characters is None else (),
    )

  def examples(self, count: int) -> list[str]:
    """Returns titles of documents, or how they begin."""
    ranks = slice(None, None, max(1, self.num_documents // max(1, count)))
    places = self.documents(ranks)[:count]
    texts = [beginning(self.document(place, characters=_BEGINNING)) for place in places]
    texts = [text[:_BEGINNING] for text in texts]
    # Words are not cut, unless they are not spaced.
    return [textwrap.shorten(text, 60, placeholder="") or text[:60] for text in texts]

  def terms(self, text: str) -> frozenset[str]:
    """Returns what a text is compared by: its words without the inflections of each language."""
    return self._analyzer.all_terms(text)

  def rarest_word(self, text: str, *, beside: str) -> str:
    """Returns the word of a text that fewest passages have, of those that another text lacks; "" if
    there is none."""
    there, counts = self.terms(beside), {}
    for start, limit in self._analyzer.marks(text, text) if self.segments else ():
      word = text[start:limit]
      if self.terms(word) - there and (count := self._bm25.num_texts(word)):
        counts[word] = count
    return min(counts, key=counts.__getitem__, default="")

  @functools.cached_property
  def languages(self) -> tuple[str, ...]:
    """The languages of the documents."""
    return self._bm25.languages if self.segments else ()

  @functools.cached_property
  def _analyzer(self) -> Analyzer:
    return Analyzer(self.languages)

  @functools.cached_property
  def _mean_E(self) -> np.ndarray:
    """The mean embedding of live passages, whose score is the mean of the scores."""
    spans = itertools.pairwise(self._firsts)
    sums = [
      segment.embeddings(self.live_N[first:end]).sum(axis=0) if moments is None else moments.sum_E
      for segment, moments, (first, end) in zip(self.segments, self._moments, spans, strict=True)
    ]
    return np.sum(sums, axis=0) / max(1, self.num_passages)

  @functools.cached_property
  def _bm25(self) -> Bm25Retriever:
    return Bm25Retriever([segment.postings for segment in self.segments], live=self.live_N)

  def matching(self, where: Where) -> Matching | None:
    """Returns what tells which of some passages `[R]` satisfy all conditions; None if all do."""
    if not where:
      return None
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
      raise ValueError(f"where={where!r:.60}; give a mapping of fields, such as {{'year': 1958}}")
    for name, condition in where.items():
      if not selects_missing(name, condition):
        self.check_field(name, of="where")
    known = (name for name in where if name in self.fields)  # all lack the others
    conditions = [self._column(name).condition(name, where[name]) for name in known]
    if not conditions:
      return None
    return lambda rows: functools.reduce(np.logical_and, (holds(rows) for holds in conditions))

  def check_field(self, name: str, *, of: str) -> None:
    """Raises ValueError if no document has a field, which something needs."""
    if name not in self.fields:
      listed = ", ".join(sorted(self.fields)[:_LISTED]) or "none"
      listed += ", ..." * (len(self.fields) > _LISTED)
      raise ValueError(f"{of}: no document has a field {name!r:.60}; there are: {listed}")

  def _column(self, name: str) -> Column:
    column = self._columns.get(name)
    if column is None:
      values, codes = [], [np.zeros(0, np.int32)]
      for segment in self.segments:
        of_documents = segment.fields.column(name)
        of_documents = np.where(of_documents < 0, -1, of_documents + np.int32(len(values)))
        codes.append(of_documents[segment.documents_N])
        values += segment.fields.values.get(name, ())
      column = self._columns[name] = Column(values, np.concatenate(codes))
      for old in [*self._columns][:-_COLUMNS_KEPT]:
        self._columns.pop(old, None)  # another thread may have done so
    return column

  @functools.cached_property
  def _columns(self) -> dict[str, Column]:
    return {}

  @functools.cached_property
  def judged_rows(self) -> dict[Any, int]:
    """Rows of judged passages that were looked for, and -1 for those that are not there."""
    return {}

  def check_values(self) -> None:
    """Checks what is not when segments are opened, because there is too much of it.

    Raises:
      ValueError: If a segment is damaged.
    """
    for entry, segment in zip(self.commit.segments, self.segments, strict=True):
      try:
        segment.check_values()
      except ValueError as error:
        raise ValueError(
          f"segment {entry.name} is damaged: {error}; restore the folder from a backup"
        ) from error

  def best(
    self,
    question: str,
    k: int,
    *,
    matching: Matching | None = None,
    also: Collection[int] = (),
    **ranking: Any,
  ) -> Ranked:
    """Returns the k best passages, those that tie with the last of them, and some rows besides.

    Args:
      also: The rows besides, of live passages; they do not count towards k.
      ranking: See `_best`.
    """
    others = np.array(sorted(also), np.intp)
    if matching is not None and len(others):
      others = others[matching(others)]
    try:
      return self._best(question, k + len(others), matching, others, **ranking)
    except (IndexError, FloatingPointError):
      self.check_values()
      raise

  def _best(
    self,
    question: str,
    k: int,
    matching: Matching | None,
    also: np.ndarray,
    *,
    by: Ranking | None = None,
    exact: bool = False,
    question_E: np.ndarray | None = None,
  ) -> Ranked:
    """See `best`.

    Args:
      by: What to rank by; None takes that of the settings.
      question_E: What embeddings are compared with, see `adapter.compared`; None ranks by words.
    """
    if not self.segments:
      return Ranked(np.zeros(0, np.intp), np.zeros(0, np.float32), np.zeros(0, np.float32))
    by = by or self.commit.settings.ranking
    if question_E is None or by == "words":
      rows, scores = self._bm25.best(question, k, matching=matching, also=also)
      return Ranked(rows, scores, scores)
    words_N = self._bm25.scores(question) if by == "fused" else np.zeros(0, np.float32)
    matched = np.flatnonzero(words_N > 0)
    of_words = fusion.Spread.of(words_N[matched])  # the others have 0
    by_words = matched if matching is None else matched[matching(matched)]
    by_words = by_words[_best_rows(words_N[by_words], _BY_WORDS)]
    compared = np.union1d(by_words, also)
    spread, scanned, near = fusion.Spread.of(np.zeros(0)), [], []
    spans = itertools.pairwise(self._firsts)
    for segment, (first, end), moments in zip(self.segments, spans, self._moments, strict=True):
      if moments is None or segment.cells is None or exact:
        scanned.append((np.arange(first, end), segment.inner_products(question_E)))
      else:
        spread = spread.plus(moments.spread(question_E))
        others = compared[(compared >= first) & (compared < end)] - first
        here = matching and (lambda rows, first=first: matching(rows + first))
        live_N = self.live_N[first:end]
        rows, products = segment.cells.search(
          question_E, k, live_N=live_N, matching=here, also=others
        )
        near.append((rows + first, products))
    rows, scores = _joined(scanned)
    found = self.live_N[rows]
    spread = spread.plus(fusion.Spread.of(scores[found]))
    if matching is not None:
      found[found] = matching(rows[found])
    rows, scores = _joined([(rows[found], scores[found]), *near])
    of_both = np.zeros(len(rows))
    if by == "fused":
      of_words = of_words._replace(count=spread.count)
      of_both = (1 - fusion.DENSE_WEIGHT) * of_words.standardize(words_N[rows])
      # Rounded, so that ties do not depend on the order in which terms were added.
      scores = fusion.DENSE_WEIGHT * spread.standardize(scores) + of_both
      scores = scores.astype(np.float32)
    if not np.isfinite(scores).all():
      raise FloatingPointError("scores have NaN or infinity")
    best = _best_rows(scores, k)
    if len(also):
      best = np.union1d(best, np.flatnonzero(np.isin(rows, also)))
    return Ranked(rows[best], scores[best], of_both[best])

  def spread(self, found: Ranked, *, by: Ranking, question_E: np.ndarray | None) -> float:
    """Returns the distance of the best score from the mean; 1 if there is none."""
    mean = 0.0
    if by == "encoder" and question_E is not None:
      mean = float(self._mean_E @ question_E)
    return float(found.scores.max(initial=mean)) - mean or 1.0

  @functools.cached_property
  def _moments(self) -> list[Moments | None]:
    """Those of the live passages of segments with cells."""
    spans = itertools.pairwise(self._firsts)
    return [
      segment.cells and segment.cells.moments_of(self.live_N[first:end])
      for segment, (first, end) in zip(self.segments, spans, strict=True)
    ]

  def hit(self, passage: int, *, score: float = 0.0) -> Hit:
    """Returns a passage as it is found."""
    place, number = self.place(passage)
    return self.hit_at(place, number, self.id(place), score)

  def hit_at(self, place: Place, number: int, id: str, score: float, **why: Any) -> Hit:
    """Returns a passage by its document and its number there."""
    segment = self.segments[place.segment]
    row = int(segment.first_passages[place.row]) + number
    text, start = segment.texts[row], segment.start(row, first=row - number)
    return Hit.of(
      score=score,
      id=id,
      title=segment.titles[place.row],
      text=text,
      passage=number,
      start=start,
      end=start + len(text),
      page=int(segment.pages_N[row]) or None,
      heading=segment.headings[int(segment.headings_N[row])],
      fields=segment.fields.row(place.row),
      **why,
    )

  def id(self, place: Place) -> str:
    return self.segments[place.segment].ids[place.row]

  def title(self, place: Place) -> str:
    return self.segments[place.segment].titles[place.row]

  def place(self, passage: int) -> tuple[Place, int]:
    """Returns the document of a passage, and its number there."""
    number = bisect.bisect_right(self._firsts, passage) - 1
    row = passage - self._firsts[number]
    document = int(self.segments[number].documents_N[row])
    return Place(number, document), row - int(self.segments[number].first_passages[document])

  def rows_of(self, place: Place) -> range:
    """Returns the rows of the passages of a document."""
    first_passages = self.segments[place.segment].first_passages
    first, limit = first_passages[place.row : place.row + 2].tolist()
    return range(self._firsts[place.segment] + first, self._firsts[place.segment] + limit)

  @functools.cached_property
  def _firsts(self) -> list[int]:
    return [0, *itertools.accumulate(segment.num_passages for segment in self.segments)]


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Sequence[np.ndarray]:
  """Returns the rows of all parts, and their scores."""
  rows = [np.zeros(0, np.intp), *(rows for rows, _ in parts)]
  scores = [np.zeros(0, np.float32), *(scores for _, scores in parts)]
  return np.concatenate(rows), np.concatenate(scores)


def _best_rows(scores: np.ndarray, k: int) -> np.ndarray:
  """Returns where the k highest scores are, and those that equal the k-th, ascending."""
  return np.flatnonzero(scores >= (kth_best(scores, k) if k < len(scores) else -np.inf))
