"""Builds shards from embeddings, and searchers from shards or from a generation on disk."""

import concurrent.futures
import dataclasses
import functools
import importlib
from collections.abc import Iterable, Mapping

import jax
import numpy as np
from jax.sharding import Mesh

from realm_jax.index import generations
from realm_jax.index.vectors import device_searcher, exact_searcher, search_process, searcher


def build_shards(
  embeddings_NxE: np.ndarray,
  *,
  config: searcher.CorpusSearcherConfig,
  part: searcher.IndexPart | None = None,
) -> list[dict[str, np.ndarray]]:
  """Returns the arrays of each shard of an index, for `generations.publish`.

  Args:
    embeddings_NxE: float32 or bfloat16 embeddings, which trees are trained on and rescore with.
    part: The shards that the embeddings belong to; None means all.
  """
  if part is None:
    part = searcher.own_part(len(embeddings_NxE), num_shards=config.num_shards, index=0, count=1)
  rows = searcher.split_rows(part.num_passages, config.num_shards)[part.shards]
  first = part.rows.start
  parts = [embeddings_NxE[own.start - first : own.stop - first] for own in rows]
  if config.kind in ("exact", "device"):
    return [{"embeddings": part} for part in parts]
  library = _import_library(config.kind)
  own_config = config.with_shards_of_a_process(len(parts))
  build = functools.partial(library.build_arrays, config=own_config)
  with concurrent.futures.ThreadPoolExecutor(min(config.num_threads(), len(parts))) as pool:
    return list(pool.map(build, parts))


def assemble(
  shards: Iterable[Mapping[str, np.ndarray]],
  *,
  config: searcher.CorpusSearcherConfig,
  mesh: Mesh | None = None,
) -> searcher.Searcher:
  """Returns a searcher over shards in corpus order.

  Args:
    mesh: The devices of "device"; None uses those of all processes.
  """
  if config.kind in ("exact", "device"):
    embeddings_NxE = np.concatenate([shard["embeddings"] for shard in shards])
    if config.kind == "exact":
      return exact_searcher.ExactSearcher(embeddings_NxE)
    return device_searcher.DeviceSearcher(
      embeddings_NxE, mesh=mesh, recall_target=config.target_recall
    )
  library = _import_library(config.kind)
  # One at a time, so that the arrays of a shard are freed as soon as the library has copied them.
  loaded = [library.load_shard(shard, config=config) for shard in shards]
  return searcher.ShardedSearcher(loaded, threads=config.num_threads())


def load_searcher(
  root: str,
  generation: int,
  *,
  make: searcher.SearcherFactory | None = None,
  spread: bool = False,
  in_subprocess: bool = False,
) -> searcher.Searcher:
  """Loads a published generation for searching.

  Args:
    make: Makes the searcher of the embeddings; None searches them as the index was built.
    spread: Whether each process loads only its share of the shards and all search together.
      `DeviceSearcher` always searches together.
    in_subprocess: Whether ScaNN or FAISS loads and searches in a subprocess, so that loading never
      blocks this process.
  """
  manifest = generations.read_manifest(root, generation)
  # The builder's number of threads is not this machine's.
  known = {field.name for field in dataclasses.fields(searcher.CorpusSearcherConfig)} - {"threads"}
  settings = {name: value for name, value in manifest.searcher.items() if name in known}
  config = searcher.CorpusSearcherConfig(**settings)
  num_shards, kind = len(manifest.shard_rows), config.kind if make is None else None
  spread = spread and kind != "device" and make is not device_searcher.DeviceSearcher
  index, count = (jax.process_index(), jax.process_count()) if spread else (0, 1)
  part = searcher.own_part(manifest.num_passages, num_shards=num_shards, index=index, count=count)
  own = range(num_shards)[part.shards]
  if spread:
    config = config.with_shards_of_a_process(len(own))
  load = functools.partial(_load_shards, root, generation, own, config, make)
  if in_subprocess and kind in searcher.TREES:
    searched = search_process.SearchProcess(load, preload=f"{__package__}.vectors.{kind}_searcher")
  else:
    searched = load()
  return searcher.SpreadSearcher(searched, part=part) if spread else searched


def _load_shards(
  root: str,
  generation: int,
  shards: range,
  config: searcher.CorpusSearcherConfig,
  make: searcher.SearcherFactory | None,
) -> searcher.Searcher:
  restored = generations.restore_each(root, generation, shards)
  if make is None:
    return assemble(restored, config=config)
  return make(np.concatenate([shard["embeddings"] for shard in restored]))


def load_embeddings(root: str, generation: int) -> np.ndarray:
  """Returns the embeddings `[N, E]` of a published generation, in corpus order."""
  manifest = generations.read_manifest(root, generation)
  shards = range(len(manifest.shard_rows))
  return np.concatenate(
    [shard["embeddings"] for shard in generations.restore_each(root, generation, shards)]
  )


def _import_library(kind: str):
  """Imports ScaNN or FAISS lazily: that takes seconds, and ScaNN works only on Linux."""
  try:
    return importlib.import_module(f"realm_jax.index.vectors.{kind}_searcher")
  except ImportError as error:
    extra = "the extra `faiss`" if kind == "faiss" else "it"
    raise ValueError(
      f'kind="{kind}" cannot be imported ({error}); install {extra}, or set the searcher\'s'
      ' kind="exact"'
    ) from error
