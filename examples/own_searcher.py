"""A searcher of your own: numpy on the host, for machines whose accelerator has no memory to spare.

A searcher is made of the embeddings of an index, whatever the index was built for. To answer,
`Sources(searcher=NumpySearcher, ...)`, and to train, `RefreshConfig(searcher=NumpySearcher)`; in a
gin file,

  from __gin__ import dynamic_registration
  from examples import own_searcher
  from realm_jax.retrieval import index_refresher
  index_refresher.RefreshConfig.searcher = @own_searcher.NumpySearcher
"""

import numpy as np

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, SearchResults


class NumpySearcher:
  """Compares queries with all passages."""

  def __init__(self, embeddings_NxE: np.ndarray):
    self.embeddings_NxE = np.asarray(embeddings_NxE, np.float32)

  def search(self, queries_BxE: np.ndarray, k: int) -> SearchResults:
    """Returns the best `k` passages of each query, best first, and their scores."""
    scores_BxN = queries_BxE @ self.embeddings_NxE.T
    ids_BxK = np.argsort(-scores_BxN, axis=1, kind="stable")[:, :k].astype(np.int32)
    scores_BxK = np.take_along_axis(scores_BxN, ids_BxK, axis=1)
    # A corpus of fewer passages leaves slots empty.
    empty = ((0, 0), (0, k - ids_BxK.shape[1]))
    return SearchResults(
      np.pad(ids_BxK, empty, constant_values=MISSING_PASSAGE_ID),
      np.pad(scores_BxK, empty, constant_values=-np.inf),
    )
