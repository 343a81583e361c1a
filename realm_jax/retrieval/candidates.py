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


def with_proposed(found: SearchResults, proposed: SearchResults) -> SearchResults:
  """Returns passages for K slots of which the posterior fills some, each passage once.

  The best found are followed by those proposed that are not among them. Where these are few, the
  others found fill the slots that are left.

  Args:
    found: The null passage and the best K-1 found with the masked query.
    proposed: The null passage and what the posterior proposes.

  Returns:
    Ids and scores `[B, K]`; what was only proposed scores -inf.
  """
  num_passages = found.ids_BxK.shape[1]
  own = num_passages - proposed.ids_BxK.shape[1] + 1
  parts = (found.ids_BxK[:, 1:own], proposed.ids_BxK[:, 1:], found.ids_BxK[:, own:])
  ids_BxR = np.concatenate(parts, axis=1)
  again_BxRxR = np.tril(ids_BxR[:, :, None] == ids_BxR[:, None, :], k=-1)
  same_BxRxK = ids_BxR[:, :, None] == found.ids_BxK[:, None, :]
  scores_BxR = np.where(same_BxRxK, found.scores_BxK[:, None, :], -np.inf).max(axis=2)
  return choose_passages(
    SearchResults(ids_BxR, scores_BxR),
    trivial_BxR=again_BxRxR.any(axis=2),
    num_passages=num_passages,
  )
