"""Exact search on a device: one matrix product and a top-k.

Query batches are padded to powers of two, so that few batch sizes are compiled.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import datatypes
from realm_jax.index import searcher

MIN_BUCKET = 8
_MAX_SCORES = 2**27  # B x n scores on one device at once: 512 MiB of float32


def max_bucket(rows: int) -> int:
  """Returns how many queries are scored against `rows` passages at once, a power of two."""
  return 1 << (max(MIN_BUCKET, _MAX_SCORES // rows).bit_length() - 1)


def bucket(num_queries: int) -> int:
  """Returns the size to which a batch of queries is padded."""
  return max(MIN_BUCKET, 1 << (num_queries - 1).bit_length())


def in_buckets(
  program: Callable[[np.ndarray], Sequence[jax.Array]], queries_BxE: np.ndarray, *, rows: int
) -> list[np.ndarray]:
  """Returns the arrays `[B, ...]` that a program makes of padded queries and `rows` passages."""
  parts, size = [], max_bucket(rows)
  for start in range(0, len(queries_BxE), size):
    part_BxE = queries_BxE[start : start + size]
    count = len(part_BxE)
    padded_BxE = np.pad(part_BxE, ((0, bucket(count) - count), (0, 0)))
    parts.append([np.asarray(array)[:count] for array in program(padded_BxE)])
  return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


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

  def __init__(self, embeddings_NxE: np.ndarray):
    """Copies the embeddings, float32 or bfloat16, to the first local device."""
    if embeddings_NxE.ndim != 2 or not embeddings_NxE.size:
      raise ValueError(f"embeddings of shape {embeddings_NxE.shape}; an index needs [N, E], N > 0")
    self.num_passages, self._embedding_size = embeddings_NxE.shape
    self._device = jax.local_devices()[0]
    self._embeddings_NxE = jax.device_put(embeddings_NxE, self._device)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query with float32 scores; ties go to the lower id."""
    queries_BxE = searcher.check_queries(queries_BxE, k, embedding_size=self._embedding_size)
    found = min(k, self.num_passages)
    scores_BxK, ids_BxK = in_buckets(
      lambda part: _top_k(self._embeddings_NxE, jax.device_put(part, self._device), k=found),
      queries_BxE,
      rows=self.num_passages,
    )
    return searcher.pad(datatypes.SearchResults(ids_BxK, scores_BxK), k)
