"""A searcher over an index and the passages edited since it was built."""

from collections.abc import Sequence

import numpy as np

from realm_jax.devices import datatypes
from realm_jax.index import searcher


class EditedSearcher:
  """Searches an index minus some of its passages, plus a few others, which it searches exactly.

  Args:
    hidden: Ids of passages that were changed or removed.
    ids: Ids of passages that were added or changed.
    embeddings: Their embeddings, `[len(ids), E]`.
  """

  def __init__(
    self,
    base: searcher.Searcher,
    *,
    hidden: Sequence[int],
    ids: Sequence[int],
    embeddings: np.ndarray,
  ):
    self._base = base
    self._hidden = np.array(sorted(hidden), np.int32)
    self._ids = np.array(ids, np.int32)
    self._embeddings = np.asarray(embeddings, np.float32)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query."""
    found = self._base.search(queries_BxE, k + len(self._hidden))
    gone = np.isin(found.ids_BxK, self._hidden)
    kept = datatypes.SearchResults(
      np.where(gone, datatypes.MISSING_PASSAGE_ID, found.ids_BxK),
      np.where(gone, -np.inf, found.scores_BxK).astype(np.float32),
    )
    if not len(self._ids):
      return searcher.merge([kept], k)
    scores_BxJ = queries_BxE.astype(np.float32) @ self._embeddings.T
    ids_BxJ = np.broadcast_to(self._ids, scores_BxJ.shape)
    return searcher.merge([kept, datatypes.SearchResults(ids_BxJ, scores_BxJ)], k)
