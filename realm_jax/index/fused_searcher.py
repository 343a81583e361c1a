"""Searches with a dual encoder and BM25, and fuses their rankings."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import numpy as np

from realm_jax.devices import datatypes
from realm_jax.devices.datatypes import SearchResults
from realm_jax.foundations import choices
from realm_jax.index import searcher
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.index.searcher import Searcher

_RANK_CONSTANT = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fusion:
  """How two rankings are fused.

  Attributes:
    by: "ranks" adds 1 / (60 + rank) of both (reciprocal rank fusion, Cormack et al. 2009);
      "scores" adds the scores, scaled per query to lie between 0 and 1. A passage that only one
      ranking has gets nothing from the other.
    weight: Weight of the dual encoder in the sum, between 0 and 1; BM25 has the rest.
    depth: Passages of each ranking to fuse, or the number requested if that is larger.
  """

  by: Literal["ranks", "scores"] = "ranks"
  weight: float = 0.5
  depth: int = 100

  def __post_init__(self):
    choices.check_fields(self)
    if not 0 <= self.weight <= 1:
      raise ValueError(f"fusion.weight={self.weight}; it must lie in [0, 1]")
    if self.depth < 1:
      raise ValueError(f"fusion.depth={self.depth}; it must be at least 1")


def fuse(dense: SearchResults, sparse: SearchResults, k: int, *, fusion: Fusion) -> SearchResults:
  """Returns the best `k` passages of each query after fusing two rankings, with fused scores.

  Equal sums, which ranks have often, are broken by lower id.
  """
  ids_BxR = np.concatenate([dense.ids_BxK, sparse.ids_BxK], axis=1)
  values_BxR = np.concatenate(
    [fusion.weight * _values(dense, fusion), (1 - fusion.weight) * _values(sparse, fusion)], axis=1
  )
  order_BxR = np.argsort(ids_BxR, axis=1, kind="stable")
  ids_BxR = np.take_along_axis(ids_BxR, order_BxR, axis=1)
  values_BxR = np.take_along_axis(values_BxR, order_BxR, axis=1)
  # An id occurs at most twice.
  again_BxR = (ids_BxR[:, 1:] == ids_BxR[:, :-1]) & (ids_BxR[:, 1:] >= 0)
  values_BxR[:, :-1] += np.where(again_BxR, values_BxR[:, 1:], 0)
  ids_BxR[:, 1:][again_BxR] = datatypes.MISSING_PASSAGE_ID
  values_BxR[ids_BxR < 0] = -np.inf
  # In float64, so that close scores keep their order.
  fused = searcher.merge([SearchResults(ids_BxR, values_BxR)], k)
  return SearchResults(fused.ids_BxK, fused.scores_BxK.astype(np.float32))


def _values(results: SearchResults, fusion: Fusion) -> np.ndarray:
  found_BxK = results.ids_BxK >= 0
  if fusion.by == "ranks":
    values_BxK = np.broadcast_to(
      1 / (_RANK_CONSTANT + 1 + np.arange(found_BxK.shape[1])), found_BxK.shape
    )
  else:
    scores_BxK = results.scores_BxK.astype(np.float64)
    # Where a ranking ends early, all other passages share no word with the query and score 0.
    lowest_Bx1 = np.where(found_BxK, scores_BxK, np.inf).min(axis=1, keepdims=True)
    lowest_Bx1 = np.where(found_BxK.all(axis=1, keepdims=True), lowest_Bx1, lowest_Bx1.clip(max=0))
    spread_Bx1 = np.where(found_BxK, scores_BxK, -np.inf).max(axis=1, keepdims=True) - lowest_Bx1
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing was found, or one score
      values_BxK = np.where(spread_Bx1 > 0, (scores_BxK - lowest_Bx1) / spread_Bx1, 1)
  return np.where(found_BxK, values_BxK, 0)


@dataclasses.dataclass(frozen=True)
class FusedSearcher:
  """Searches an index by the queries' embeddings and BM25 by their texts.

  Attributes:
    by_words: Called as `by_words(k)`, returns BM25's results for the texts of the queries. Further
      queries, which pad a batch, are searched in the index alone.
  """

  base: Searcher
  by_words: Callable[[int], SearchResults]
  fusion: Fusion

  def search(self, queries_BxE: np.ndarray, k: int) -> SearchResults:
    """Returns the best `k` passages of each query, with fused scores."""
    depth = max(k, self.fusion.depth)
    dense, sparse = self.base.search(queries_BxE, depth), self.by_words(depth)
    rows = ((0, len(queries_BxE) - len(sparse.ids_BxK)), (0, 0))
    sparse = SearchResults(
      np.pad(sparse.ids_BxK, rows, constant_values=datatypes.MISSING_PASSAGE_ID),
      np.pad(sparse.scores_BxK, rows, constant_values=-np.inf),
    )
    return fuse(dense, sparse, k, fusion=self.fusion)


@dataclasses.dataclass(frozen=True)
class Hybrid:
  """BM25 in addition to a dual encoder."""

  bm25: Bm25Retriever
  fusion: Fusion

  def searcher(
    self,
    base: Searcher,
    texts: Sequence[str],
    *,
    hidden: Collection[int] = (),
    written: Mapping[int, str] | None = None,
  ) -> FusedSearcher:
    """Returns a searcher for queries with these texts; see `Bm25Retriever.retrieve`."""

    def by_words(k: int) -> SearchResults:
      return self.bm25.retrieve(texts, k=k, hidden=hidden, written=written)

    return FusedSearcher(base, by_words, self.fusion)
