"""Publishes embeddings of a corpus as the next generation of an index."""

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning, processes
from realm_jax.index import assembly, exact_searcher, generations
from realm_jax.index.searcher import (
  CorpusSearcherConfig,
  IndexPart,
  Searcher,
  TreeSearcher,
  own_part,
  recall_at_k,
)
from realm_jax.index.sharded_searcher import SpreadSearcher


def check_corpus(index: str, store: PassageStore) -> None:
  """Checks that the generations of an index are of this corpus and vocabulary.

  Raises:
    ForeignGenerationError: If one is not.
  """
  for manifest in _manifests(index):
    found = f"corpus {manifest.corpus_fingerprint}, vocabulary {manifest.vocabulary_digest}"
    own = f"corpus {store.fingerprint}, vocabulary {store.metadata.vocabulary_digest}"
    if found != own:
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of {found}; {store.directory} is {own}; "
        "give --index another directory, or delete this one if nobody needs it any more"
      )


def check_run(index: str, *, run: str | None, parameters_digest: str, checkpoint: object) -> None:
  """Checks that the generations of an index were made from checkpoints of this run.

  Args:
    run: The name of the checkpoint's run. Imported checkpoints have none, and are one run if they
      have one passage encoder.
    parameters_digest: The digest of its passage encoder.
    checkpoint: What to call it in the message.

  Raises:
    ForeignGenerationError: If one was not.
  """
  for manifest in _manifests(index):
    same_encoder = manifest.parameters_digest == parameters_digest
    if manifest.run != run or (run is None and not same_encoder):
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of run {manifest.run} (passage encoder "
        f"{manifest.parameters_digest}), {checkpoint} is of run {run} (passage encoder "
        f"{parameters_digest}); give --index another directory, or let this run take over the "
        "index with --other_runs=accept"
      )


def _manifests(index: str) -> Iterator[generations.Manifest]:
  """Yields the manifests that can be read, the newest first; the others serve nobody."""
  for number in reversed(generations.all_generations(index)):
    try:
      yield generations.read_manifest(index, number)
    except generations.DamagedGenerationError:
      continue


_RECALL_AT = 10
_STEP = 1.1  # ratio of successive numbers of leaves tried


def choose_leaves(
  recall: Callable[[int], float], *, num_leaves: int, target: float
) -> tuple[int, float]:
  """Returns the fewest leaves (within 10 %) whose recall reaches the target, and their recall.

  Returns all leaves if even these do not reach it. Tries at most 6 numbers of leaves for an index
  of 281 leaves, and 7 for 2,000.
  """
  rungs = range(math.ceil(math.log(num_leaves, _STEP)) + 1)
  ladder = sorted({math.ceil(num_leaves / _STEP**rung) for rung in rungs})
  measured = functools.cache(recall)
  place = bisect.bisect_left(ladder, target, key=measured)
  leaves = ladder[min(place, len(ladder) - 1)]
  return leaves, measured(leaves)


def reach_target(
  config: CorpusSearcherConfig,
  shards: Sequence[Mapping[str, np.ndarray]],
  *,
  embeddings_NxE: np.ndarray,
  queries_BxE: np.ndarray,
  part: IndexPart,
) -> tuple[CorpusSearcherConfig, dict[int, float]]:
  """Measures an index, and chooses how many leaves to search unless the settings do.

  All processes must call it together, each with its own queries.

  Returns:
    The settings to search with, and a map from k to the recall@k reached.
  """
  own_exact = exact_searcher.BlockwiseExactSearcher(embeddings_NxE)
  exact = SpreadSearcher(own_exact, part=part).search(queries_BxE, _RECALL_AT)
  # Not every TPU slice compiles a search on just the devices of one of several processes.
  several = jax.process_count() > 1
  alone = partitioning.make_mesh(devices=jax.local_devices()[:1]) if several else None
  own_config = config.with_shards_of_a_process(len(shards))
  own = assembly.assemble(shards, config=own_config, mesh=alone)

  def recall(searcher: Searcher) -> float:
    found = SpreadSearcher(searcher, part=part).search(queries_BxE, _RECALL_AT)
    return float(np.mean(processes.share(recall_at_k(found.ids_BxK, exact.ids_BxK))))

  target = config.target_recall
  if not isinstance(own, TreeSearcher) or config.num_leaves_to_search or target is None:
    return config, {_RECALL_AT: recall(own)}
  leaves, reached = choose_leaves(
    lambda leaves: recall(own.with_leaves(leaves)), num_leaves=config.num_leaves, target=target
  )
  if reached < target:
    logging.warning(
      "recall@%d is %.3f with all %d leaves searched, target_recall=%s; raise reorder_candidates=%d"
      ", or lower the target",
      _RECALL_AT,
      reached,
      leaves,
      target,
      config.reorder_candidates,
    )
  return dataclasses.replace(config, num_leaves_to_search=leaves), {_RECALL_AT: reached}


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
