"""The recall of an index relative to exact search, and the leaves needed to reach a target."""

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from absl import logging

from realm_jax.devices import partitioning, processes
from realm_jax.index import assembly, exact_searcher
from realm_jax.index.searcher import (
  CorpusSearcherConfig,
  IndexPart,
  Searcher,
  TreeSearcher,
  recall_at_k,
)
from realm_jax.index.sharded_searcher import SpreadSearcher

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
