"""Search of an index spread over several processes, for corpora beyond one host's memory."""

import jax
import numpy as np

from realm_jax import datatypes, processes
from realm_jax.index import searcher


class SpreadSearcher:
  """Searches the shards of all processes: queries are gathered, answers merged exactly.

  All processes must search at the same time, each with its own queries, equally often and from the
  thread that sends their steps. With one process it is the searcher that it is given.

  Args:
    own: searches the rows of this process.
    part: which they are.
  """

  def __init__(self, own: searcher.Searcher, *, part: searcher.CorpusPart):
    self.generation = own.generation
    self.num_passages = part.num_passages
    self._own = own
    self._first_row = part.rows.start

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of the queries of this process."""
    asked = [part["queries"] for part in processes.gather({"queries": queries_BxE})]
    found = self._own.search(np.concatenate(asked), k)
    ids_BxK = np.where(found.ids_BxK >= 0, found.ids_BxK + self._first_row, found.ids_BxK)
    everyone = processes.gather({"ids": ids_BxK, "scores": found.scores_BxK})
    first = sum(map(len, asked[: jax.process_index()]))
    rows = slice(first, first + len(queries_BxE))
    return searcher.merge(
      [datatypes.SearchResults(part["ids"][rows], part["scores"][rows]) for part in everyone], k
    )
