"""Publishes embeddings of a corpus as the next generation of an index."""

import dataclasses
import types
from collections.abc import Mapping

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index import assembly, exact_searcher, generations
from realm_jax.index.searcher import SearcherConfig, recall_at_k

_RECALL_SAMPLE = 256
_RECALL_AT = 10


def publish(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  config: SearcherConfig,
  training_step: int,
  parameters_digest: str,
  keep: int,
  scorecard: Mapping[str, float] = types.MappingProxyType({}),
) -> generations.Manifest:
  """Builds the shards, measures their recall and publishes them.

  Args:
    index: directory of the generations.
    embeddings_NxE: float32 or bfloat16, a row for each passage.
    store: the corpus.
    config: settings of the index, from `for_corpus`.
    training_step: of the checkpoint that embedded the passages.
    parameters_digest: of its passage encoder.
    keep: generations kept.
    scorecard: figures of this generation.

  Returns:
    The manifest of the new generation.
  """
  shards = assembly.build_shards(embeddings_NxE, config=config)
  last = generations.newest(index)
  return generations.publish(
    index,
    0 if last is None else last + 1,
    shards,
    manifest=generations.Manifest(
      training_step=training_step,
      parameters_digest=parameters_digest,
      corpus_fingerprint=store.fingerprint,
      vocabulary_digest=store.metadata.vocabulary_digest,
      num_passages=len(store),
      embedding_size=embeddings_NxE.shape[1],
      dtype=str(embeddings_NxE.dtype),
      searcher=dataclasses.asdict(config),
      recall=_recall(embeddings_NxE, shards, config),
      scorecard=dict(scorecard),
    ),
    keep=keep,
  )


def _recall(embeddings_NxE, shards, config: SearcherConfig) -> dict[int, float]:
  """Measures the index against exact search, with passages of the corpus as queries."""
  sample = np.random.default_rng(0).permutation(len(embeddings_NxE))[:_RECALL_SAMPLE]
  queries = embeddings_NxE[sample].astype(np.float32)
  approximate = assembly.assemble(shards, config=config).search(queries, _RECALL_AT)
  exact = exact_searcher.ExactSearcher(embeddings_NxE.astype(np.float32)).search(
    queries, _RECALL_AT
  )
  return {_RECALL_AT: recall_at_k(approximate.ids_BxK, exact.ids_BxK)}
