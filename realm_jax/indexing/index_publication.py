"""Publishes embeddings of a corpus as the next generation of an index."""

import dataclasses
import types
from collections.abc import Callable, Mapping

import numpy as np

from realm_jax import processes
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index import assembly, generations
from realm_jax.index.searcher import CorpusPart, SearcherConfig, own_part
from realm_jax.indexing import index_recall


def publish(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  config: SearcherConfig,
  queries: Callable[[], np.ndarray],
  training_step: int,
  parameters_digest: str,
  run: str | None = None,
  keep: int,
  scorecard: Mapping[str, float] = types.MappingProxyType({}),
  part: CorpusPart | None = None,
) -> generations.Manifest:
  """Builds the shards, has them find as much as the settings demand, and publishes them.

  Args:
    index: directory of the generations.
    embeddings_NxE: float32 or bfloat16, a row for each passage of the part.
    store: the corpus.
    config: settings of the index, from `for_corpus`.
    queries: embeds queries `[B, E]` that an index which is not exact is measured with.
    training_step: of the checkpoint that embedded the passages.
    parameters_digest: of its passage encoder.
    run: that the checkpoint is of, see `Manifest`.
    keep: generations kept.
    scorecard: figures of this generation.
    part: of several processes, which all call this, the shards of this one; None: all shards.

  Returns:
    The manifest of the new generation.
  """
  if part is None:
    part = own_part(len(store), num_shards=config.num_shards, index=0, count=1)
  shards = assembly.build_shards(embeddings_NxE, config=config, part=part)
  recall = {}
  if config.is_approximate(len(store)):
    config, recall = index_recall.reach_target(
      config, shards, embeddings_NxE=embeddings_NxE, queries_BxE=queries(), part=part
    )
  last = processes.share(generations.newest(index))[0]
  return generations.publish(
    index,
    0 if last is None else last + 1,
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
      scorecard=dict(scorecard),
    ),
    keep=keep,
  )
