"""Exact search on one device, of all passages at once or block by block."""

import jax
import numpy as np

from realm_jax.devices import datatypes, partitioning
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.device_searcher import DeviceSearcher


class ExactSearcher:
  """Searches all N passages, which must fit into the memory of one device."""

  def __init__(self, embeddings_NxE: np.ndarray):
    """Copies the embeddings, float32 or bfloat16, to the first local device."""
    mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
    self._searcher = DeviceSearcher(embeddings_NxE, mesh=mesh)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query with float32 scores; ties go to the lower id."""
    return self._searcher.search(queries_BxE, k)


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
