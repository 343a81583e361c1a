"""Publishes embeddings of a corpus as the next generation of an index."""

import dataclasses
from collections.abc import Callable

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import processes
from realm_jax.index import assembly, generations
from realm_jax.index.recall import reach_target
from realm_jax.index.searcher import CorpusSearcherConfig, IndexPart, own_part


def publish(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  config: CorpusSearcherConfig,
  queries: Callable[[], np.ndarray],
  training_step: int,
  parameters_digest: str,
  run: str | None = None,
  keep: int,
  part: IndexPart | None = None,
) -> generations.Manifest:
  """Builds the shards, chooses how many leaves to search, and publishes a generation.

  All processes must call it together.

  Args:
    embeddings_NxE: float32 or bfloat16 embeddings of the passages of `part`.
    queries: Returns embedded queries `[B, E]` for measuring approximate search.
    parameters_digest: The digest of its passage encoder.
    run: The name of the checkpoint's run, see `Manifest`.
    part: The shards of this process; None means all.
  """
  if part is None:
    part = own_part(len(store), num_shards=config.num_shards, index=0, count=1)
  shards = assembly.build_shards(embeddings_NxE, config=config, part=part)
  recall = {}
  if config.is_approximate(len(store)):
    config, recall = reach_target(
      config, shards, embeddings_NxE=embeddings_NxE, queries_BxE=queries(), part=part
    )
  return generations.publish(
    index,
    processes.share(_next_number(index))[0],
    shards,
    manifest=generations.Manifest(
      training_step=training_step,
      parameters_digest=parameters_digest,
      run=run,
      corpus_fingerprint=store.fingerprint,
      vocabulary_digest=store.metadata.vocabulary_digest,
      num_passages=len(store),
      embedding_size=embeddings_NxE.shape[1],
      dtype=str(embeddings_NxE.dtype),
      searcher=dataclasses.asdict(config),
      recall=recall,
    ),
    keep=keep,
  )


def _next_number(index: str) -> int:
  last = generations.newest(index)
  return 0 if last is None else last + 1
