"""Chooses the K passages to read with a query: the null passage first, never trivial ones."""

import numpy as np

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, NULL_PASSAGE_ID, SearchResults


def choose_passages(
  results: SearchResults, *, trivial_BxR: np.ndarray, num_passages: int
) -> SearchResults:
  """Returns the null passage followed by the best K-1 passages that are not trivial.

  See Guu et al. 2020, section 3.4. The search returns a few extra passages, so that K-1 remain
  after the trivial ones are dropped. Empty slots get MISSING_PASSAGE_ID.

  Returns:
    Ids and scores `[B, K]`; null and missing passages score 0.
  """
  ids_BxR, scores_BxR = results
  usable_BxR = (ids_BxR >= 0) & ~trivial_BxR
  order_BxR = np.argsort(~usable_BxR, axis=1, kind="stable")[:, : num_passages - 1]
  usable = np.take_along_axis(usable_BxR, order_BxR, 1)
  ids = np.where(usable, np.take_along_axis(ids_BxR, order_BxR, 1), MISSING_PASSAGE_ID)
  scores = np.where(usable, np.take_along_axis(scores_BxR, order_BxR, 1), 0.0)
  batch, found = ids.shape
  ids_BxK = np.full((batch, num_passages), MISSING_PASSAGE_ID, np.int32)
  scores_BxK = np.zeros((batch, num_passages), np.float32)
  ids_BxK[:, 0] = NULL_PASSAGE_ID
  ids_BxK[:, 1 : 1 + found] = ids
  scores_BxK[:, 1 : 1 + found] = scores
  return SearchResults(ids_BxK, scores_BxK)
