"""Search on the devices: embeddings sharded over a mesh, a top-k on each shard, one merge.

Every device scores the queries against its own rows and keeps the best k; these are then merged
exactly. Approximate search uses the accelerator's own top-k (Chern et al. 2022), whose recall holds
for each device's rows and so for the merged result.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from realm_jax import datatypes, partitioning
from realm_jax.index import query_buckets, searcher
from realm_jax.index.query_buckets import MIN_BUCKET

_GIB = 2**30


class DeviceSearcher:
  """Searches embeddings in the memory of a mesh of devices, without an index structure."""

  def __init__(
    self,
    embeddings_NxE: np.ndarray,
    *,
    mesh: Mesh | None = None,
    recall_target: float | None = None,
    memory_bytes: int | None = None,
  ):
    """Shards the embeddings, float32 or bfloat16, over the devices.

    Args:
      embeddings_NxE: Embeddings of all passages, in host memory.
      mesh: Mesh whose devices take equal parts; None uses the devices of this process.
      recall_target: Expected share of the true best passages that are found; None searches exactly.
      memory_bytes: Memory available per device; None uses what the device reports as free.

    Raises:
      ValueError: If the embeddings do not fit into the devices.
    """
    if embeddings_NxE.ndim != 2 or not embeddings_NxE.size:
      raise ValueError(f"embeddings of shape {embeddings_NxE.shape}; an index needs [N, E], N > 0")
    if mesh is None:
      mesh = partitioning.make_mesh(devices=jax.local_devices())
    self.num_passages, self._embedding_size = embeddings_NxE.shape
    self._rows = rows = rows_per_device(self.num_passages, mesh.size)
    check_memory(
      num_passages=self.num_passages,
      embedding_size=self._embedding_size,
      dtype=embeddings_NxE.dtype,
      num_devices=mesh.size,
      memory_bytes=_free_bytes(mesh) if memory_bytes is None else memory_bytes,
    )

    def part(index):
      given = embeddings_NxE[index]
      return np.pad(given, ((0, rows - len(given)), (0, 0)))

    self._embeddings_NxE = jax.make_array_from_callback(
      (rows * mesh.size, self._embedding_size),
      partitioning.sharding(mesh, "passages", "projection"),
      part,
    )
    self._queries_sharding = partitioning.sharding(mesh)
    self._program = functools.partial(
      search_program, mesh, num_passages=self.num_passages, recall_target=recall_target
    )

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query; exact search breaks ties by the lower id."""
    queries_BxE = searcher.check_queries(queries_BxE, k, embedding_size=self._embedding_size)
    program = self._program(k=min(k, self.num_passages))
    scores_BxK, ids_BxK = query_buckets.run(
      lambda part: program(self._embeddings_NxE, jax.device_put(part, self._queries_sharding)),
      queries_BxE,
      rows=self._rows,
    )
    # Approximate search may run out of candidates and fill up with rows past the corpus.
    ids_BxK = np.where(np.isneginf(scores_BxK), datatypes.MISSING_PASSAGE_ID, ids_BxK)
    return searcher.pad(datatypes.SearchResults(ids_BxK, scores_BxK), k)


@functools.lru_cache(maxsize=64)
def search_program(
  mesh: Mesh, *, num_passages: int, k: int, recall_target: float | None
) -> Callable:
  """Returns the jitted search `(embeddings [N', E], queries [B, E]) -> (scores, ids) [B, k]`.

  The devices of the mesh hold N' rows, of which those past `num_passages` are padding.
  """
  axes = tuple(mesh.axis_names)
  rows = rows_per_device(num_passages, mesh.size)

  def search_part(embeddings_nxE, queries_BxE):
    first_row = jax.lax.axis_index(axes) * rows
    # Exact search needs exact products; by default an accelerator rounds float32 to bfloat16.
    precision = jax.lax.Precision.HIGHEST if recall_target is None else None
    scores_Bxn = jnp.einsum(
      "BE,nE->Bn",
      queries_BxE if recall_target is None else queries_BxE.astype(embeddings_nxE.dtype),
      embeddings_nxE,
      precision=precision,
      preferred_element_type=jnp.float32,
    )
    row_n = first_row + jnp.arange(rows)
    scores_Bxn = jnp.where((row_n < num_passages)[None], scores_Bxn, -jnp.inf)
    kept = min(k, rows)
    if recall_target is None:
      scores_Bxk, best_Bxk = jax.lax.top_k(scores_Bxn, kept)
    else:
      scores_Bxk, best_Bxk = jax.lax.approx_max_k(scores_Bxn, kept, recall_target=recall_target)
    # Parts come in corpus order, so of equal scores the lower id comes first.
    all_scores, all_ids = (
      jax.lax.all_gather(array, axes, axis=1, tiled=True)
      for array in (scores_Bxk, first_row + best_Bxk)
    )
    scores_BxK, best_BxK = jax.lax.top_k(all_scores, k)
    return scores_BxK, jnp.take_along_axis(all_ids, best_BxK, axis=1)

  return jax.jit(
    jax.shard_map(
      search_part,
      mesh=mesh,
      in_specs=(PartitionSpec(axes), PartitionSpec()),
      out_specs=PartitionSpec(),
      check_vma=False,  # it cannot infer that the gathered parts are equal on all devices
    )
  )


def abstract_search(
  mesh: Mesh, *, num_passages: int, embedding_size: int, dtype, batch_size: int
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
  """Returns the shapes and shardings of `search_program`'s arguments."""
  rows = rows_per_device(num_passages, mesh.size)
  queries = query_buckets.bucket(min(batch_size, query_buckets.max_bucket(rows)))
  return (
    jax.ShapeDtypeStruct(
      (rows * mesh.size, embedding_size),
      dtype,
      sharding=partitioning.sharding(mesh, "passages", "projection"),
    ),
    jax.ShapeDtypeStruct(
      (queries, embedding_size), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec())
    ),
  )


def rows_per_device(num_passages: int, num_devices: int) -> int:
  """Returns the number of rows per device, including padding on the last one."""
  return -(-num_passages // num_devices)


def check_memory(
  *, num_passages: int, embedding_size: int, dtype, num_devices: int, memory_bytes: int
) -> None:
  """Raises ValueError if embeddings and scores do not fit into the memory of each device."""
  rows = rows_per_device(num_passages, num_devices)
  needed = rows * embedding_size * np.dtype(dtype).itemsize
  scores = 4 * rows * MIN_BUCKET
  if needed + scores > memory_bytes:
    fitting = int(memory_bytes / (embedding_size * np.dtype(dtype).itemsize + 4 * MIN_BUCKET))
    raise ValueError(
      f"{num_passages} passages of {embedding_size} {np.dtype(dtype).name} take "
      f"{needed / _GIB:.2f} GiB and {scores / _GIB:.2f} GiB of scores on each of {num_devices} "
      f"devices, which have {memory_bytes / _GIB:.2f} GiB free, enough for "
      f"{max(fitting, 0) * num_devices} passages; use bfloat16, more devices, or a searcher of "
      'kind="scann", which uses host memory'
    )


def _free_bytes(mesh: Mesh) -> int:
  """Returns the free memory of the fullest device of this process."""
  free = []
  for device in mesh.local_devices:
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
      free.append(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    else:  # CPU devices share the machine's memory
      free.append(psutil.virtual_memory().available // len(mesh.local_devices))
  return min(free)
