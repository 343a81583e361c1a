"""Approximate search with FAISS (Douze et al. 2024): inverted file, 4-bit codes, exact reordering.

Queries are compared with the codes of product quantization in registers (André et al. 2015). A
shard is stored as its embeddings and, without them, as FAISS's own serialization, which is no
pickle. Candidates are rescored with a float32 copy of the embeddings.
"""

from collections.abc import Mapping

import faiss
import numpy as np

from realm_jax.devices import datatypes
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.searcher import Shard

_CODES = "faiss_index"
_BITS = 4
_DIMENSIONS_PER_CODE = 4


class FaissShard(Shard):
  """One FAISS index over consecutive rows of the corpus; ids count from its first row."""

  def __init__(
    self,
    codes: faiss.IndexIVFPQFastScan | None,
    *,
    embeddings_NxE: np.ndarray,
    config: searcher.CorpusSearcherConfig,
  ):
    """Copies the embeddings to float32; without codes, all of them are compared."""
    super().__init__(embeddings_NxE, config)
    self._codes = codes  # which the index refers to
    # In float32: FAISS's own bfloat16 would round the queries as well.
    self._exact = faiss.IndexFlatIP(self.embedding_size)
    self._exact.add(_rows(embeddings_NxE))
    self._index = self._exact if codes is None else faiss.IndexRefine(codes, self._exact)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` rows of the shard, padded with -2 and -inf."""
    config, settings = self.config, None
    found = min(k, self.num_passages)
    if self._codes is not None:
      candidates = min(searcher.candidates_to_rescore(config, k), self.num_passages)
      settings = faiss.IndexRefineSearchParameters(
        k_factor=candidates / found,
        base_index_params=faiss.SearchParametersIVF(
          nprobe=searcher.leaves_to_search(config, k, num_passages=self.num_passages)
        ),
      )
    faiss.omp_set_num_threads(self.threads)  # of the calling thread
    scores_BxK, ids_BxK = self._index.search(queries_BxE, found, params=settings)
    empty_BxK = ids_BxK < 0
    results = datatypes.SearchResults(
      np.where(empty_BxK, datatypes.MISSING_PASSAGE_ID, ids_BxK).astype(np.int32),
      np.where(empty_BxK, -np.inf, scores_BxK),
    )
    return searcher.pad(results, k)


def build_arrays(
  embeddings_NxE: np.ndarray, *, config: searcher.CorpusSearcherConfig
) -> dict[str, np.ndarray]:
  """Builds the index of one shard; returns it as named arrays, including the embeddings."""
  rows_NxE, arrays = _rows(embeddings_NxE), {"embeddings": embeddings_NxE}
  if len(rows_NxE) >= config.min_passages_for_tree:
    num_rows, size = rows_NxE.shape
    leaves = min(config.num_leaves, num_rows)
    num_codes = next(size // d for d in range(_DIMENSIONS_PER_CODE, 0, -1) if size % d == 0)
    codes = faiss.index_factory(
      size, f"IVF{leaves},PQ{num_codes}x{_BITS}fs", faiss.METRIC_INNER_PRODUCT
    )
    for clustering in (codes.cp, codes.pq.cp):
      clustering.min_points_per_centroid = 1  # so that few rows raise no warning
    codes.cp.max_points_per_centroid = searcher.TRAINING_ROWS_PER_LEAF
    faiss.omp_set_num_threads(config.threads_per_shard())
    codes.train(rows_NxE)
    codes.add(rows_NxE)
    arrays[_CODES] = faiss.serialize_index(codes)
  return arrays


def load_shard(
  arrays: Mapping[str, np.ndarray], *, config: searcher.CorpusSearcherConfig
) -> FaissShard:
  """Restores a shard from the arrays of `build_arrays`."""
  embeddings_NxE = arrays["embeddings"]
  names = {"embeddings"} | (
    {_CODES} if len(embeddings_NxE) >= config.min_passages_for_tree else set()
  )
  if set(arrays) != names:
    raise ValueError(
      f"a FAISS shard has arrays {sorted(arrays)} instead of {sorted(names)}; build the index again"
    )
  codes = None
  if _CODES in arrays:
    try:
      codes = faiss.deserialize_index(np.ascontiguousarray(arrays[_CODES], np.uint8))
    except RuntimeError as error:
      raise ValueError(f"FAISS cannot read a shard ({error}); build the index again") from error
    if not isinstance(codes, faiss.IndexIVFPQFastScan) or (codes.ntotal, codes.d) != (
      embeddings_NxE.shape
    ):
      raise ValueError(
        f"a FAISS shard of {embeddings_NxE.shape} embeddings has a {type(codes).__name__} of "
        f"{(codes.ntotal, codes.d)}; build the index again"
      )
  return FaissShard(codes, embeddings_NxE=embeddings_NxE, config=config)


def _rows(embeddings_NxE: np.ndarray) -> np.ndarray:
  if embeddings_NxE.dtype.name not in ("float32", "bfloat16"):
    raise ValueError(f"passage embeddings are {embeddings_NxE.dtype}; give float32 or bfloat16")
  return searcher.finite_rows(embeddings_NxE)
