"""Searches with a dual encoder and BM25, and fuses what they find."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from realm_jax.devices import datatypes
from realm_jax.devices.datatypes import SearchResults
from realm_jax.foundations import choices
from realm_jax.index import searcher
from realm_jax.index.bm25 import Bm25Retriever, best_places
from realm_jax.index.fusion import DENSE_WEIGHT, Spread, fuse, fuse_scores
from realm_jax.index.searcher import Embeddings, Searcher

_RANK_CONSTANT = 60
MOST_SCORED = 200_000
_SAMPLE = 10_000
_DEPTH = 100  # passages of each ranking to fuse, at least, by ranks or of more than MOST_SCORED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fusion(choices.Checked):
  """How a dual encoder and BM25 are fused.

  Attributes:
    by: "scores" adds standardized scores (`realm_jax.index.fusion`); "ranks" adds 1 / (60 + rank)
      of both (reciprocal rank fusion, Cormack et al. 2009), where a passage that only one ranking
      has gets nothing from the other.
    weight: Weight of the dual encoder in the sum, between 0 and 1; BM25 has the rest.
  """

  by: Literal["scores", "ranks"] = "scores"
  weight: choices.Share = DENSE_WEIGHT


def fuse_ranks(
  dense: SearchResults, sparse: SearchResults, k: int, *, weight: float
) -> SearchResults:
  """Returns the best `k` passages of each query after adding reciprocal ranks.

  Equal sums, which are frequent, are broken by lower id.
  """
  ids_BxR = np.concatenate([dense.ids_BxK, sparse.ids_BxK], axis=1)
  values_BxR = np.concatenate(
    [
      share / (_RANK_CONSTANT + 1 + np.arange(ids_BxK.shape[1])) * (ids_BxK >= 0)
      for share, ids_BxK in ((weight, dense.ids_BxK), (1 - weight, sparse.ids_BxK))
    ],
    axis=1,
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSearcher:
  """Searches by the queries' embeddings and by their texts.

  Attributes:
    base: Searches the index.
    embeddings_IxE: The embeddings of the index, needed to fuse scores.
    texts: The texts of the queries. Further queries, which pad a batch, have none.
  """

  base: Searcher
  embeddings_IxE: Embeddings | None
  bm25: Bm25Retriever
  fusion: Fusion
  texts: Sequence[str]

  def search(self, queries_BxE: np.ndarray, k: int) -> SearchResults:
    """Returns the best `k` passages of each query, with fused scores."""
    texts = [*self.texts, *[""] * (len(queries_BxE) - len(self.texts))]
    depth = max(k, _DEPTH)
    if self.fusion.by == "ranks":
      dense, sparse = self.base.search(queries_BxE, depth), self.bm25.retrieve(texts, k=depth)
      return fuse_ranks(dense, sparse, k, weight=self.fusion.weight)
    live_I = self.bm25.live_I
    if len(live_I) <= MOST_SCORED:
      fused = self._all_fused(queries_BxE, texts, live_I)
    else:
      fused = self._best_fused(queries_BxE, texts, live_I, depth)
    ids_BxK = np.full((len(texts), k), datatypes.MISSING_PASSAGE_ID, np.int32)
    scores_BxK = np.full((len(texts), k), -np.inf, np.float32)
    for row, (ids_C, fused_C) in enumerate(fused):
      best = best_places(fused_C, k)
      ids_BxK[row, : len(best)] = ids_C[best]
      scores_BxK[row, : len(best)] = fused_C[best]
    return SearchResults(ids_BxK, scores_BxK)

  def _all_fused(
    self, queries_BxE: np.ndarray, texts: Sequence[str], live_I: np.ndarray
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the ids of all passages and their fused scores, for each query."""
    live = np.flatnonzero(live_I)
    dense_BxI = queries_BxE @ self._embeddings(np.arange(len(live_I))).T
    for dense_I, text in zip(dense_BxI, texts, strict=True):
      sparse_I = self.bm25.scores_by_id(text)
      fused = fuse_scores(dense_I[live], sparse_I[live], weight=self.fusion.weight)
      yield live, fused

  def _best_fused(
    self, queries_BxE: np.ndarray, texts: Sequence[str], live_I: np.ndarray, depth: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the same of the `depth` best passages of each ranking, for each query."""
    found = self.base.search(queries_BxE, depth)
    # BM25 knows all its scores, which are too unlike each other to be sampled.
    sample_S = np.linspace(0, len(live_I) - 1, _SAMPLE).astype(np.int64)
    sampled_BxS = queries_BxE @ self._embeddings(sample_S).T
    for query_E, text, ids_K, sampled_S in zip(
      queries_BxE, texts, found.ids_BxK, sampled_BxS, strict=True
    ):
      sparse_I = self.bm25.scores_by_id(text)
      by_words = best_places(sparse_I, depth)
      ids_C = np.union1d(ids_K[ids_K >= 0], by_words[sparse_I[by_words] > 0])
      dense_C = self._embeddings(ids_C) @ query_E
      spreads = Spread.of(sampled_S), Spread.of(sparse_I[live_I])
      yield ids_C, fuse(dense_C, sparse_I[ids_C], spreads=spreads, weight=self.fusion.weight)

  def _embeddings(self, ids_C: np.ndarray) -> np.ndarray:
    assert self.embeddings_IxE is not None, "scores are fused with the embeddings of the index"
    whole = isinstance(self.embeddings_IxE, np.ndarray) and len(ids_C) == len(self.embeddings_IxE)
    rows_CxE = self.embeddings_IxE if whole else self.embeddings_IxE[ids_C]
    return np.asarray(rows_CxE, np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hybrid:
  """BM25 in addition to a dual encoder.

  Attributes:
    embeddings_IxE: The embeddings of the index, needed to fuse scores.
  """

  bm25: Bm25Retriever
  fusion: Fusion
  embeddings_IxE: Embeddings | None = None

  def edited(
    self,
    *,
    hidden: Collection[int],
    written: Mapping[int, str],
    embeddings_IxE: Embeddings | None,
  ) -> "Hybrid":
    """Returns a hybrid of an edited corpus; see `Bm25Retriever.edited`."""
    bm25 = self.bm25.edited(hidden=hidden, written=written)
    return dataclasses.replace(self, bm25=bm25, embeddings_IxE=embeddings_IxE)

  def searcher(self, base: Searcher, texts: Sequence[str]) -> FusedSearcher:
    """Returns a searcher for queries with these texts."""
    return FusedSearcher(
      base=base,
      embeddings_IxE=self.embeddings_IxE,
      bm25=self.bm25,
      fusion=self.fusion,
      texts=texts,
    )
