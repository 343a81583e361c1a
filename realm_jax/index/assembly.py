"""From embeddings to shards, from shards to a searcher, from a generation on disk to a searcher."""

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Mapping

import jax
import numpy as np

from realm_jax.index import device_searcher, exact_searcher, generations, searcher


def build_shards(
  embeddings_NxE: np.ndarray, *, config: searcher.SearcherConfig
) -> list[dict[str, np.ndarray]]:
  """Returns the arrays of each shard of an index, as `generations.publish` takes them.

  Args:
    embeddings_NxE: float32 or bfloat16; ScaNN is trained on, and re-scores with, these values.
    config: settings; what is `None` is derived from N.
  """
  config = config.for_corpus(len(embeddings_NxE))
  parts = [embeddings_NxE[s] for s in searcher.split_rows(len(embeddings_NxE), config.num_shards)]
  if config.kind in ("exact", "device"):
    return [{"embeddings": part} for part in parts]
  scann_searcher = _import_scann_searcher()

  def build(part_NxE):
    return scann_searcher.build_shard(part_NxE, config=config).to_arrays(part_NxE)

  with concurrent.futures.ThreadPoolExecutor(config.num_threads()) as pool:
    return list(pool.map(build, parts))


def assemble(
  shards: Iterable[Mapping[str, np.ndarray]],
  *,
  config: searcher.SearcherConfig,
  generation: int = 0,
  device: jax.Device | None = None,
) -> searcher.Searcher:
  """Returns a searcher over the shards, in the order of the corpus; only "exact" uses `device`.

  `config` must come from `for_corpus`; "exact" and "device" also search shards that were built for
  ScaNN.
  """
  if config.kind == "exact":
    embeddings_NxE = np.concatenate([shard["embeddings"] for shard in shards])
    return exact_searcher.ExactSearcher(embeddings_NxE, generation=generation, device=device)
  if config.kind == "device":
    embeddings_NxE = np.concatenate([shard["embeddings"] for shard in shards])
    return device_searcher.DeviceSearcher(
      embeddings_NxE, recall_target=config.recall_target, generation=generation
    )
  scann_searcher = _import_scann_searcher()
  # One at a time, so that an iterator's shards are freed as soon as ScaNN holds them.
  loaded = [scann_searcher.load_shard(shard, config=config) for shard in shards]
  return scann_searcher.ScannSearcher(loaded, generation=generation, threads=config.num_threads())


def load_searcher(
  root: str,
  generation: int,
  *,
  kind: str = "auto",
  num_leaves_to_search: int | None = None,
  reorder_candidates: int | None = None,
  threads: int | None = None,
  device: jax.Device | None = None,
) -> searcher.Searcher:
  """Loads a published generation for searching.

  Args:
    root: directory of the generations.
    generation: its number.
    kind: "exact" searches any generation exactly on one device, "device" on all; "auto" as it was
      built.
    num_leaves_to_search: replaces the setting that the index was built with.
    reorder_candidates: likewise.
    threads: threads of one search. None: the cores of this process.
    device: where exact search runs. None: the first local device.

  Raises:
    FileNotFoundError: if the generation is not there (any more).
    generations.DamagedGenerationError: if it is not what was published.
    ValueError: if "scann" is asked of a generation built without it.
  """
  manifest = generations.read_manifest(root, generation)
  built = searcher.SearcherConfig(**manifest.searcher)
  if kind == "scann" and built.kind != "scann":
    raise ValueError(
      f'generation {generation} in {root} was built with kind="{built.kind}" and has no ScaNN'
      ' shards; load it with kind="auto" or rebuild it with kind="scann"'
    )
  config = dataclasses.replace(
    built,
    kind=built.kind if kind == "auto" else kind,
    num_leaves_to_search=num_leaves_to_search or built.num_leaves_to_search,
    reorder_candidates=reorder_candidates or built.reorder_candidates,
    threads=threads,
  )
  shards = (generations.restore(root, generation, i) for i in range(len(manifest.shards)))
  return assemble(shards, config=config, generation=generation, device=device)


def load_embeddings(root: str, generation: int) -> np.ndarray:
  """Returns the embeddings `[N, E]` of a published generation, in the order of the corpus.

  Raises:
    FileNotFoundError: if the generation is not there (any more).
    generations.DamagedGenerationError: if it is not what was published.
  """
  manifest = generations.read_manifest(root, generation)
  shards = (generations.restore(root, generation, i) for i in range(len(manifest.shards)))
  return np.concatenate([shard["embeddings"] for shard in shards])


def _import_scann_searcher():
  """Imports ScaNN when it is needed: it takes seconds and exists for Linux only."""
  try:
    from realm_jax.index import scann_searcher
  except ImportError as error:
    raise ImportError(
      f'ScaNN cannot be imported ({error}); install it or set the searcher\'s kind="exact"'
    ) from error
  return scann_searcher
