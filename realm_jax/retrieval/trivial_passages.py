"""Passages that give the answer of a masked query away, because its sentence stands in them.

That is the passage the query was cut from, by its uid. But chunks overlap, one dump is cut with two
settings, and texts are quoted: so it is every other passage that holds the sentence, too. Both are
compared as wordpieces, which are the same wherever a sentence stands.
"""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.datatypes import MaskedQueries

ANY = -1  # a wordpiece of a sentence that is not known


def find(queries: MaskedQueries, ids_BxR: np.ndarray, *, store: PassageStore) -> np.ndarray:
  """Returns bool `[B, R]`: which passages must not be read with which query.

  Args:
    queries: with the uids of their source; of one without a source no passage is trivial.
    ids_BxR: rows of the store; negative ones are none.
    store: the knowledge corpus.
  """
  source_uid_B = np.asarray(queries.source_uid_B)
  trivial_BxR = store.uids[np.maximum(ids_BxR, 0)] == source_uid_B[:, None]
  asked_BxR = (ids_BxR >= 0) & (source_uid_B != 0)[:, None]
  query_C, place_C = np.nonzero(asked_BxR)
  bodies_CxP, _ = store.body_ids(
    ids_BxR[query_C, place_C], length=store.metadata.max_passage_length
  )
  trivial_BxR[query_C, place_C] |= _holds(bodies_CxP, query_C, *sentences(queries))
  return trivial_BxR & asked_BxR


def sentences(queries: MaskedQueries) -> tuple[np.ndarray, np.ndarray]:
  """Returns the wordpieces `[B, L]` of the queries before they were masked, and their number.

  Of a span with more wordpieces than are predicted the last ones are not known: they are `ANY`.
  """
  ids_BxL = np.array(queries.query.ids)
  predicted_BxM = np.asarray(queries.mlm_weights_BxM) > 0
  masks_BxM = np.take_along_axis(ids_BxL, queries.mlm_positions_BxM, axis=1)
  masks_BxM = np.where(predicted_BxM, masks_BxM, ANY)
  rows, slots = np.nonzero(predicted_BxM)
  ids_BxL[rows, queries.mlm_positions_BxM[rows, slots]] = queries.mlm_targets_BxM[rows, slots]
  ids_BxL[(ids_BxL[:, :, None] == masks_BxM[:, None, :]).any(axis=2)] = ANY
  lengths_B = np.maximum(queries.query.mask.sum(axis=1) - 2, 0)
  sentences_BxL = np.where(np.arange(ids_BxL.shape[1] - 1) < lengths_B[:, None], ids_BxL[:, 1:], 0)
  return sentences_BxL, lengths_B


def _holds(
  bodies_CxP: np.ndarray, query_C: np.ndarray, sentences_BxL: np.ndarray, lengths_B: np.ndarray
) -> np.ndarray:
  """Returns bool `[C]`: whether a body holds the whole sentence of its query."""
  # Most places are ruled out by one wordpiece; in most vocabularies the last ones are rare.
  anchor_B = sentences_BxL.argmax(axis=1)
  rarest_B = np.take_along_axis(sentences_BxL, anchor_B[:, None], axis=1)[:, 0]
  wanted_C = np.where(rarest_B > 0, rarest_B, -1)[query_C]
  body_H, place_H = np.nonzero(bodies_CxP == wanted_C[:, None])
  first_H = place_H - anchor_B[query_C[body_H]]
  inside = (first_H >= 0) & (first_H + lengths_B[query_C[body_H]] <= bodies_CxP.shape[1])
  body_H, first_H = body_H[inside], first_H[inside]
  for place in range(sentences_BxL.shape[1]):
    if not len(body_H):
      break
    query_H = query_C[body_H]
    column_H = np.minimum(first_H + place, bodies_CxP.shape[1] - 1)
    wanted_H = sentences_BxL[query_H, place]
    alive = (place >= lengths_B[query_H]) | (wanted_H == ANY)
    alive |= bodies_CxP[body_H, column_H] == wanted_H
    body_H, first_H = body_H[alive], first_H[alive]
  found_C = np.zeros(len(bodies_CxP), bool)
  found_C[body_H] = True
  return found_C
