"""Searches an index spread over several processes, for corpora that exceed one host's memory."""

import jax
import numpy as np

from realm_jax import datatypes, processes
from realm_jax.index import searcher


class SpreadSearcher:
  """Searches the shards of all processes: gathers the queries and merges the results exactly.

  All processes must search equally often, each with its own queries, from the thread that
  dispatches their steps. With one process it is equivalent to `own`.
  """

  def __init__(self, own: searcher.Searcher, *, part: searcher.CorpusPart):
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
