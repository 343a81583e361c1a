"""Searches an older index with the queries of a newer encoder, mapped to the older embeddings.

While the dual encoder learns, the embeddings of all passages move together, to a good part by a
linear map M. It is fitted on a sample of passages whose old and new embeddings are known. Because
(M e) · q = e · (Mᵀ q), mapping the queries has the effect of moving every row of the index.
"""

import dataclasses

import numpy as np

from realm_jax import datatypes
from realm_jax.index.searcher import Searcher

_RIDGE = 0.01  # of the mean variance of the old embeddings


def fit(old_JxE: np.ndarray, new_JxE: np.ndarray) -> np.ndarray:
  """Returns Mᵀ as `[E, E]`, for `queries_BxE @ map_ExE`.

  By least squares, up to the means, which add the same to all scores of a query, and shrunk towards
  the identity.

  Args:
    old_JxE: Embeddings of a sample of passages in the index.
    new_JxE: Their embeddings by the newer encoder.
  """
  old_JxE, new_JxE = (np.asarray(rows, np.float64) for rows in (old_JxE, new_JxE))
  old_JxE, new_JxE = old_JxE - old_JxE.mean(axis=0), new_JxE - new_JxE.mean(axis=0)
  identity_ExE = np.eye(old_JxE.shape[1])
  products_ExE = old_JxE.T @ old_JxE
  ridge = _RIDGE * np.trace(products_ExE) / len(identity_ExE)
  change_ExE = np.linalg.solve(products_ExE + ridge * identity_ExE, old_JxE.T @ (new_JxE - old_JxE))
  return (identity_ExE + change_ExE).T.astype(np.float32)


@dataclasses.dataclass(frozen=True)
class MappedSearcher:
  """Searches with mapped queries.

  Attributes:
    searcher: Searches the older embeddings.
    map_ExE: From `fit`.
  """

  searcher: Searcher
  map_ExE: np.ndarray

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query; see `Searcher`."""
    return self.searcher.search(np.asarray(queries_BxE, np.float32) @ self.map_ExE, k)
