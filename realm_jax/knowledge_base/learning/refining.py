"""What is done to passages that were found: age, a reranker, repetitions, what stands around."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from realm_jax.knowledge_base.store import columns
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.query import Query
from realm_jax.knowledge_base.store.snapshot import Snapshot
from realm_jax.text.segmentation import spaced

CONSIDERED = 50  # passages that age and a reranker put in another order, if k is no larger
_DEEPER, _DEEPEST = 4, 3200  # passages that repetitions are left out of
_SHINGLE = 3  # words in a row
_ALIKE = 0.8  # the share of these that near-duplicates have in common


class Newer(NamedTuple):
  """How much newer documents come first.

  Attributes:
    field: A field with times or numbers.
    half_life: Days, or what the numbers count, in which a passage loses half of its lead.
  """

  field: str
  half_life: float

  @classmethod
  def of(cls, text: str) -> "Newer":
    """Reads FIELD:HALF_LIFE.

    Raises:
      ValueError: If it is something else.
    """
    field, colon, number = text.rpartition(":")
    try:
      half_life = float(number)
    except ValueError:
      half_life = math.nan
    if not (field and colon and 0 < half_life < math.inf):
      raise ValueError(f"newer={text!r:.60}; give FIELD:HALF_LIFE, such as date:30 for 30 days")
    return cls(field, half_life)

  def check(self, snapshot: Snapshot) -> None:
    """Raises ValueError unless the field has a time or a number in some document."""
    snapshot.check_field(self.field, of="newer")
    values = (value for of in snapshot.segments for value in of.fields.values.get(self.field, ()))
    if not any(columns.magnitude(value) is not None for value in values):
      raise ValueError(
        f"newer: no {self.field} is a number or a time such as 2026-06-01 or 2026-06-01T12:00; one "
        f"is {snapshot.fields[self.field]!r:.60}"
      )


def refined(
  snapshot: Snapshot,
  query: Query,
  *,
  rank: Callable[[int], tuple[Any, ...]],
) -> tuple[list[Hit], tuple[Any, ...]]:
  """Returns the best passages as a query wants them, and the first ranking that they are of.

  Args:
    rank: Returns a ranking: the best passages, as many as are asked for, best first, and more.
  """
  newer = None if query.newer is None else Newer.of(query.newer)
  if newer is not None:
    newer.check(snapshot)
  reorders = newer is not None or query.rerank is not None
  selects = query.per_document is not None or query.distinct
  depth = max(query.k, CONSIDERED) if reorders or selects else query.k
  hits, *_ = ranking = rank(depth)
  if not (reorders or selects or query.around):
    return hits, ranking
  first, raise_by = hits[: max(query.k, CONSIDERED)], 0.0
  if newer is not None:
    first = _newer_first(first, *newer)
  if query.rerank is not None and first:
    best, raise_by = _reranked(query.question, first[:CONSIDERED], query.rerank)
    first = [*best, *_raised(first[CONSIDERED:], raise_by)]
  seen = {(hit.id, hit.passage) for hit in first}  # a deeper ranking may have others before them
  while True:
    others = [hit for hit in hits if (hit.id, hit.passage) not in seen]
    ordered = [*first, *_raised(others, raise_by)]
    kept = _selected(ordered, query.k, per_document=query.per_document, distinct=query.distinct)
    if not selects or len(kept) >= query.k or len(hits) < depth or depth >= _DEEPEST:
      break
    depth *= _DEEPER
    hits, *_ = rank(depth)
  if query.around:
    kept = [_with_surroundings(snapshot, hit, query.around) for hit in kept]
  return kept, ranking


def _newer_first(hits: Sequence[Hit], field: str, half_life: float) -> list[Hit]:
  times = [columns.magnitude(hit.fields.get(field)) for hit in hits]
  known = [time for time in times if time is not None]
  if not known:
    return [*hits]
  newest, oldest, lowest = max(known), min(known), min(hit.score for hit in hits)
  aged = []
  for hit, time in zip(hits, times, strict=True):
    age = (newest - (oldest if time is None else time)) / half_life
    score = lowest + (hit.score - lowest) * 2.0**-age
    aged.append((age, dataclasses.replace(hit, score=score)))
  return [hit for _, hit in sorted(aged, key=lambda one: (-one[1].score, one[0]))]


def _reranked(question: str, hits: Sequence[Hit], rerank: Any) -> tuple[list[Hit], float]:
  """Returns passages by another score, and by how much to raise the scores of those below them."""
  texts = [f"{hit.title}\n{hit.text}".strip() for hit in hits]
  if hasattr(rerank, "predict"):
    scores = rerank.predict([(question, text) for text in texts], show_progress_bar=False)
  else:
    scores = rerank(question, texts)
  scores = np.asarray(scores, np.float64)
  if scores.shape != (len(texts),) or not np.isfinite(scores).all():
    raise ValueError(
      f"rerank returned scores {list(scores.shape)} for {len(texts)} texts; it returns a finite "
      "number for each"
    )
  again = [
    dataclasses.replace(hit, score=score) for hit, score in zip(hits, scores.tolist(), strict=True)
  ]
  return sorted(again, key=lambda hit: -hit.score), float(scores.min()) - hits[-1].score


def _raised(hits: Sequence[Hit], by: float) -> Sequence[Hit]:
  return [dataclasses.replace(hit, score=hit.score + by) for hit in hits] if by else hits


def _selected(
  hits: Iterable[Hit], k: int, *, per_document: int | None, distinct: bool
) -> list[Hit]:
  kept: list[Hit] = []
  counts: dict[str, int] = {}
  for hit in hits:
    place = _place_of_same(hit, kept) if distinct else None
    if place is not None:
      if hit.id not in (kept[place].id, *kept[place].same):
        kept[place] = dataclasses.replace(kept[place], same=(*kept[place].same, hit.id))
      continue
    if len(kept) == k or (per_document and counts.get(hit.id, 0) >= per_document):
      continue
    counts[hit.id] = counts.get(hit.id, 0) + 1
    kept.append(hit)
  return kept


def _place_of_same(hit: Hit, kept: Sequence[Hit]) -> int | None:
  shingles = _shingles(hit.text or hit.title)
  for place, other in enumerate(kept):
    others = _shingles(other.text or other.title)
    if len(shingles & others) >= _ALIKE * len(shingles | others):
      return place
  return None


@functools.lru_cache(maxsize=1024)
def _shingles(text: str) -> frozenset[tuple[str, ...]]:
  """Returns the words of a text, three in a row, without case and punctuation, or signs alone."""
  words = re.findall(r"\w+", spaced(text.casefold())) or [text]
  count = max(1, len(words) - _SHINGLE + 1)
  return frozenset(tuple(words[i : i + _SHINGLE]) for i in range(count))


def _with_surroundings(snapshot: Snapshot, hit: Hit, count: int) -> Hit:
  (place,) = snapshot.find([hit.id])
  if place is None:
    return hit
  rows = snapshot.rows_of(place)
  near = rows[max(0, hit.passage - count) : hit.passage + count + 1]
  part = [snapshot.hit(row).text for row in near]
  return dataclasses.replace(hit, around="\n".join(part))
