"""Searches the shards of an index, of one process or of several, and merges their results."""

import abc
import concurrent.futures
import copy
import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from realm_jax.devices import datatypes, processes
from realm_jax.index import searcher


class Shard(abc.ABC):
  """An index of consecutive rows of the corpus; ids count from the first of them."""

  def __init__(self, embeddings_NxE: np.ndarray, config: searcher.CorpusSearcherConfig):
    self.num_passages, self.embedding_size = embeddings_NxE.shape
    self.config = config
    self.threads = config.threads_per_shard()

  @abc.abstractmethod
  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` rows of the shard, padded with -2 and -inf."""

  def with_leaves(self, num_leaves_to_search: int) -> "Shard":
    """Returns the same shard with another number of leaves to search."""
    shard = copy.copy(self)
    shard.config = dataclasses.replace(self.config, num_leaves_to_search=num_leaves_to_search)
    return shard


class ShardedSearcher:
  """Searches the shards of a corpus in parallel and merges their results exactly."""

  def __init__(self, shards: Sequence[Shard], *, threads: int = 1):
    """Takes the shards in corpus order, and the number of threads for searching them."""
    self._shards = shards
    self._first_rows = np.cumsum([0] + [shard.num_passages for shard in shards[:-1]])
    self._threads = min(threads, len(shards))
    self._pool = concurrent.futures.ThreadPoolExecutor(self._threads, thread_name_prefix="search")

  def with_leaves(self, num_leaves_to_search: int) -> "ShardedSearcher":
    """Returns a searcher that searches another number of leaves in the same shards."""
    shards = [shard.with_leaves(num_leaves_to_search) for shard in self._shards]
    return ShardedSearcher(shards, threads=self._threads)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns approximately the best `k` passages of each query with exact float32 scores.

    It finds fewer than min(k, N) only if the leaves searched hold fewer.
    """
    width = self._shards[0].embedding_size
    queries_BxE = searcher.check_queries(queries_BxE, k, embedding_size=width)
    if len(self._shards) == 1:
      return self._shards[0].search(queries_BxE, k)
    results = []
    remaining = iter(list(zip(self._shards, self._first_rows, strict=True)))

    def work():
      for shard, first_row in remaining:
        ids_BxK, scores_BxK = shard.search(queries_BxE, k)
        ids_BxK[ids_BxK >= 0] += first_row
        results.append(datatypes.SearchResults(ids_BxK, scores_BxK))

    # ScaNN and FAISS release the interpreter lock, so threads search in parallel.
    helpers = [self._pool.submit(work) for _ in range(self._threads - 1)]
    work()
    for helper in helpers:
      if not helper.cancel():  # a thread that has not begun would find nothing to do
        helper.result()
    return searcher.merge(results, k)


class SpreadSearcher:
  """Searches the shards of all processes, for corpora that exceed one host's memory.

  It gathers the queries and merges the results exactly.
  All processes must search equally often, each with its own queries, from the thread that
  dispatches their steps. With one process it is equivalent to `own`.
  """

  def __init__(self, own: searcher.Searcher, *, part: searcher.IndexPart):
    self._own = own
    self._first_row = part.rows.start

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of the queries of this process."""
    queries = [part["queries"] for part in processes.gather({"queries": queries_BxE})]
    found = self._own.search(np.concatenate(queries), k)
    ids_BxK = np.where(found.ids_BxK >= 0, found.ids_BxK + self._first_row, found.ids_BxK)
    everyone = processes.gather({"ids": ids_BxK, "scores": found.scores_BxK})
    first = sum(map(len, queries[: jax.process_index()]))
    rows = slice(first, first + len(queries_BxE))
    return searcher.merge(
      [datatypes.SearchResults(part["ids"][rows], part["scores"][rows]) for part in everyone], k
    )
