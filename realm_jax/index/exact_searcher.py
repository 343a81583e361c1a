"""Exact search on a device: one matrix product and a top-k."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import datatypes
from realm_jax.index import query_buckets, searcher


@functools.partial(jax.jit, static_argnames="k")
def _top_k(embeddings_NxE, queries_BxE, k):
  scores_BxN = jnp.einsum(
    "BE,NE->BN",
    queries_BxE,
    embeddings_NxE,
    precision=jax.lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
  return jax.lax.top_k(scores_BxN, k)  # breaks ties by the lower index


class BlockwiseExactSearcher:
  """Searches N passages in float32, block by block, for corpora of any size."""

  def __init__(self, embeddings_NxE: np.ndarray, *, block_size: int = 2**20):
    self._embeddings_NxE = embeddings_NxE
    self._block_size = block_size

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the same results as `ExactSearcher`."""
    blocks = []
    for first in range(0, len(self._embeddings_NxE), self._block_size):
      block_NxE = self._embeddings_NxE[first : first + self._block_size]
      found = ExactSearcher(block_NxE.astype(np.float32, copy=False)).search(queries_BxE, k)
      ids_BxK = np.where(found.ids_BxK >= 0, found.ids_BxK + first, found.ids_BxK)
      blocks.append(datatypes.SearchResults(ids_BxK, found.scores_BxK))
    return searcher.merge(blocks, k)


class ExactSearcher:
  """Searches all N passages, which must fit into the memory of one device."""

  def __init__(self, embeddings_NxE: np.ndarray, *, device: jax.Device | None = None):
    """Copies the embeddings, float32 or bfloat16, to the device (by default the first local)."""
    if embeddings_NxE.ndim != 2 or not embeddings_NxE.size:
      raise ValueError(f"embeddings of shape {embeddings_NxE.shape}; an index needs [N, E], N > 0")
    self.num_passages, self._embedding_size = embeddings_NxE.shape
    self._device = device or jax.local_devices()[0]
    self._embeddings_NxE = jax.device_put(embeddings_NxE, self._device)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query with float32 scores; ties go to the lower id."""
    queries_BxE = searcher.check_queries(queries_BxE, k, embedding_size=self._embedding_size)
    found = min(k, self.num_passages)
    scores_BxK, ids_BxK = query_buckets.run(
      lambda part: _top_k(self._embeddings_NxE, jax.device_put(part, self._device), k=found),
      queries_BxE,
      rows=self.num_passages,
    )
    return searcher.pad(datatypes.SearchResults(ids_BxK, scores_BxK), k)
