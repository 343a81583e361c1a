"""Searches with a dual encoder and BM25, and fuses what they find."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, SearchResults
from realm_jax.index.fusion import DENSE_WEIGHT, Spread, fuse, fuse_scores
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.searcher import Embeddings, Searcher
from realm_jax.index.words.bm25 import Bm25Retriever, best_places

MOST_SCORED = 200_000
_SAMPLE = 10_000
_DEPTH = 100  # passages of each ranking to fuse, at least, of more than MOST_SCORED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hybrid:
  """BM25 in addition to a dual encoder.

  Attributes:
    weight: Weight of the dual encoder in the sum of standardized scores (`realm_jax.index.fusion`),
      between 0 and 1; BM25 has the rest.
    embeddings_IxE: The embeddings of the index. None lets BM25 rank, followed by passages of the
      dual encoder if too few share a word with the query.
  """

  bm25: Bm25Retriever
  weight: float = DENSE_WEIGHT
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

  def searcher(self, base: Searcher, texts: Sequence[str]) -> "FusedSearcher":
    """Returns a searcher for queries with these texts."""
    return FusedSearcher(hybrid=self, base=base, texts=texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSearcher:
  """Searches by the queries' embeddings and by their texts.

  Attributes:
    base: Searches the index.
    texts: The texts of the queries. Further queries, which pad a batch, have none.
  """

  hybrid: Hybrid
  base: Searcher
  texts: Sequence[str]

  def search(self, queries_BxE: np.ndarray, k: int) -> SearchResults:
    """Returns the best `k` passages of each query, with fused scores."""
    texts = [*self.texts, *[""] * (len(queries_BxE) - len(self.texts))]
    if self.hybrid.embeddings_IxE is None:
      return self._words_first(queries_BxE, texts, k)
    live_I = self.hybrid.bm25.live_I
    if len(live_I) <= MOST_SCORED:
      fused = self._all_fused(queries_BxE, texts, live_I)
    else:
      fused = self._best_fused(queries_BxE, texts, live_I, max(k, _DEPTH))
    ids_BxK = np.full((len(texts), k), MISSING_PASSAGE_ID, np.int32)
    scores_BxK = np.full((len(texts), k), -np.inf, np.float32)
    for row, (ids_C, fused_C) in enumerate(fused):
      best = best_places(fused_C, k)
      ids_BxK[row, : len(best)] = ids_C[best]
      scores_BxK[row, : len(best)] = fused_C[best]
    return SearchResults(ids_BxK, scores_BxK)

  def _words_first(self, queries_BxE: np.ndarray, texts: Sequence[str], k: int) -> SearchResults:
    """Returns what BM25 finds, whose scores are positive, before what else the index finds."""
    words, (ids_BxK, _) = self.hybrid.bm25.retrieve(texts, k=k), self.base.search(queries_BxE, k)
    again_BxK = (ids_BxK[:, :, None] == words.ids_BxK[:, None]).any(axis=-1) | (ids_BxK < 0)
    others = SearchResults(
      np.where(again_BxK, MISSING_PASSAGE_ID, ids_BxK),
      np.where(again_BxK, -np.inf, -1.0 - np.arange(k)).astype(np.float32),
    )
    return searcher.merge([words, others], k)

  def _all_fused(
    self, queries_BxE: np.ndarray, texts: Sequence[str], live_I: np.ndarray
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the ids of all passages and their fused scores, for each query."""
    live = np.flatnonzero(live_I)
    dense_BxI = queries_BxE @ self._embeddings(np.arange(len(live_I))).T
    for dense_I, text in zip(dense_BxI, texts, strict=True):
      sparse_I = self.hybrid.bm25.scores_by_id(text)
      fused = fuse_scores(dense_I[live], sparse_I[live], weight=self.hybrid.weight)
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
      sparse_I = self.hybrid.bm25.scores_by_id(text)
      by_words = best_places(sparse_I, depth)
      ids_C = np.union1d(ids_K[ids_K >= 0], by_words[sparse_I[by_words] > 0])
      dense_C = self._embeddings(ids_C) @ query_E
      spreads = Spread.of(sampled_S), Spread.of(sparse_I[live_I])
      yield ids_C, fuse(dense_C, sparse_I[ids_C], spreads=spreads, weight=self.hybrid.weight)

  def _embeddings(self, ids_C: np.ndarray) -> np.ndarray:
    embeddings_IxE = self.hybrid.embeddings_IxE
    assert embeddings_IxE is not None
    whole = isinstance(embeddings_IxE, np.ndarray) and len(ids_C) == len(embeddings_IxE)
    rows_CxE = embeddings_IxE if whole else embeddings_IxE[ids_C]
    return np.asarray(rows_CxE, np.float32)
