"""Search on the devices: embeddings sharded over a mesh, a top-k on each shard, one merge.

Every device scores the queries against its own rows and keeps the best k; these are then merged
exactly. Approximate search uses the accelerator's own top-k (Chern et al. 2022), whose recall holds
for each device's rows and so for the merged result.

The mesh has the devices of all processes, because some TPU slices (v5e, v6e) cannot compile a
program that communicates between only some of them.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.sharding import Mesh, PartitionSpec

from realm_jax.devices import datatypes, partitioning, processes
from realm_jax.index.vectors import searcher

_GIB = 2**30
_MIN_BUCKET = 8
_MAX_SCORES = 2**27  # B x n scores on one device at once: 512 MiB of float32


class DeviceSearcher:
  """Searches embeddings in the memory of a mesh of devices, without an index structure.

  If the devices belong to several processes, all must search equally often and in the same order.
  """

  def __init__(
    self,
    embeddings_NxE: np.ndarray,
    *,
    mesh: Mesh | None = None,
    recall_target: float | None = None,
  ):
    """Shards the embeddings, float32 or bfloat16, over the devices.

    Args:
      embeddings_NxE: Embeddings of all passages, in host memory.
      mesh: Mesh; its devices take equal parts. None uses the devices of all processes.
      recall_target: Expected share of the true best passages that are found; None searches exactly.
    """
    if embeddings_NxE.ndim != 2 or not embeddings_NxE.size:
      raise ValueError(f"embeddings of shape {embeddings_NxE.shape}; an index needs [N, E], N > 0")
    self._mesh = mesh = mesh or partitioning.make_mesh()
    self.num_passages, self._embedding_size = embeddings_NxE.shape
    self._rows = rows = rows_per_device(self.num_passages, mesh.size)
    check_memory(
      num_passages=self.num_passages,
      embedding_size=self._embedding_size,
      dtype=embeddings_NxE.dtype,
      num_devices=mesh.size,
      memory_bytes=_free_bytes(mesh),
    )

    def part(index):
      given = embeddings_NxE[index]
      if len(given) == rows:
        return given  # without a copy, which may be as large as the memory that is left
      return np.pad(given, ((0, rows - len(given)), (0, 0)))

    self._embeddings_NxE = jax.make_array_from_callback(
      (rows * mesh.size, self._embedding_size),
      partitioning.sharding(mesh, "passages", "projection"),
      part,
    )
    self._recall_target = recall_target

  def begin(self, queries_BxE: jax.Array, k: int) -> Callable[[], datatypes.SearchResults]:
    """Enqueues the search for queries of all processes, sharded by rows; does not wait.

    Returns:
      A function that waits for the results and returns those of this process's queries.
    """
    found = self._run(queries_BxE, k)

    def finish() -> datatypes.SearchResults:
      searcher.check_queries(
        processes.local_rows(queries_BxE), k, embedding_size=self._embedding_size
      )
      return self._results([processes.own_rows(np.asarray(array)) for array in found], k)

    return finish

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query; exact search breaks ties by the lower id."""
    queries_BxE = searcher.check_queries(queries_BxE, k, embedding_size=self._embedding_size)
    if len({device.process_index for device in self._mesh.devices.flat}) == 1:
      return self._search(queries_BxE, k)
    queries, own = searcher.gather_queries(queries_BxE)
    return datatypes.SearchResults(*(rows[own] for rows in self._search(queries, k)))

  def _search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Searches for queries that all processes of the mesh have.

    Pads them to powers of two, so that few batch sizes are compiled.
    """
    replicated = partitioning.sharding(self._mesh)
    parts, size = [], _max_bucket(self._rows)
    for start in range(0, len(queries_BxE), size):
      part_BxE = queries_BxE[start : start + size]
      count = len(part_BxE)
      bucket = max(_MIN_BUCKET, 1 << (count - 1).bit_length())
      padded_BxE = np.pad(part_BxE, ((0, bucket - count), (0, 0)))
      placed = jax.make_array_from_callback(padded_BxE.shape, replicated, padded_BxE.__getitem__)
      parts.append([np.asarray(array)[:count] for array in self._run(placed, k)])
    return self._results([np.concatenate(arrays) for arrays in zip(*parts, strict=True)], k)

  def _run(self, queries_BxE: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    program = search_program(
      self._mesh,
      num_passages=self.num_passages,
      k=min(k, self.num_passages),
      recall_target=self._recall_target,
    )
    return program(self._embeddings_NxE, queries_BxE)

  def _results(self, found: Sequence[np.ndarray], k: int) -> datatypes.SearchResults:
    scores_BxK, ids_BxK = found
    # Approximate search may run out of candidates and fill up with rows past the corpus.
    ids_BxK = np.where(np.isneginf(scores_BxK), datatypes.MISSING_PASSAGE_ID, ids_BxK)
    return searcher.pad(datatypes.SearchResults(ids_BxK, scores_BxK), k)


@functools.lru_cache(maxsize=64)
def search_program(
  mesh: Mesh, *, num_passages: int, k: int, recall_target: float | None
) -> Callable:
  """Returns the jitted search `(embeddings [N', E], queries [B, E]) -> (scores, ids) [B, k]`.

  The devices of the mesh hold N' rows; those past `num_passages` are padding. Queries may
  be sharded in any way; results are on every device.
  """
  axes = tuple(mesh.axis_names)
  rows = rows_per_device(num_passages, mesh.size)
  at_once = _max_bucket(rows)

  def search_part(embeddings_nxE, queries_BxE):
    first_row = jax.lax.axis_index(axes) * rows

    def best(queries_bxE):
      # Exact search needs exact products; by default an accelerator rounds float32 to bfloat16.
      precision = jax.lax.Precision.HIGHEST if recall_target is None else None
      scores_bxn = jnp.einsum(
        "bE,nE->bn",
        queries_bxE if recall_target is None else queries_bxE.astype(embeddings_nxE.dtype),
        embeddings_nxE,
        precision=precision,
        preferred_element_type=jnp.float32,
      )
      row_n = first_row + jnp.arange(rows)
      scores_bxn = jnp.where((row_n < num_passages)[None], scores_bxn, -jnp.inf)
      if recall_target is None:
        return jax.lax.top_k(scores_bxn, min(k, rows))
      return jax.lax.approx_max_k(scores_bxn, min(k, rows), recall_target=recall_target)

    scores_Bxk, best_Bxk = _in_groups(best, queries_BxE.astype(jnp.float32), size=at_once)
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


def _in_groups(best: Callable, queries_BxE: jax.Array, *, size: int) -> list[jax.Array]:
  """Returns the arrays `[B, ...]` that `best` makes of at most `size` queries at a time."""
  num_queries, width = queries_BxE.shape
  if num_queries <= size:
    return best(queries_BxE)
  padded = jnp.pad(queries_BxE, ((0, -num_queries % size), (0, 0)))
  found = jax.lax.map(best, padded.reshape(-1, size, width))
  return [array.reshape(-1, array.shape[-1])[:num_queries] for array in found]


def _max_bucket(rows: int) -> int:
  """Returns how many queries are scored against `rows` passages at once, a power of two."""
  return 1 << (max(_MIN_BUCKET, _MAX_SCORES // rows).bit_length() - 1)


def abstract_embeddings(
  mesh: Mesh, *, num_passages: int, embedding_size: int, dtype
) -> jax.ShapeDtypeStruct:
  """Returns shape and sharding of the first argument of `search_program`."""
  return jax.ShapeDtypeStruct(
    (rows_per_device(num_passages, mesh.size) * mesh.size, embedding_size),
    dtype,
    sharding=partitioning.sharding(mesh, "passages", "projection"),
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
  scores = 4 * rows * _MIN_BUCKET
  if needed + scores > memory_bytes:
    fitting = int(memory_bytes / (embedding_size * np.dtype(dtype).itemsize + 4 * _MIN_BUCKET))
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
