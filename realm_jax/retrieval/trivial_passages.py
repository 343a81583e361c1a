"""Passages that give away a masked query because they hold its sentence, and those that answer it.

One of the trivial ones is the passage that the query was cut from, identified by its uid. But
chunks overlap, corpora are cut from one dump with different settings, and texts quote each other,
so any other passage that contains the sentence is trivial too. A passage that is not answers if it
holds what is predicted: every run of adjacent masked wordpieces. Texts are compared as wordpieces,
which do not depend on context.
"""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import MaskedQueries

ANY = -1  # stands for an unknown wordpiece of a sentence


def find(queries: MaskedQueries, ids_BxR: np.ndarray, *, store: PassageStore) -> np.ndarray:
  """Returns bool `[B, R]`, True where a passage must not be read with a query that has a source."""
  source_uid_B = np.asarray(queries.source_uid_B)
  trivial_BxR = store.uids[np.maximum(ids_BxR, 0)] == source_uid_B[:, None]
  compared_BxR = (ids_BxR >= 0) & (source_uid_B != 0)[:, None]
  query_F, place_F = np.nonzero(compared_BxR)
  bodies_FxP, _ = store.body_ids(
    ids_BxR[query_F, place_F], length=store.metadata.max_passage_length
  )
  trivial_BxR[query_F, place_F] |= holds(bodies_FxP, query_F, *sentences(queries))
  return trivial_BxR & compared_BxR


def sources(queries: MaskedQueries, *, store: PassageStore) -> np.ndarray:
  """Returns the rows `[B]` of the passages that the queries were cut from, or -1."""
  source_uid_B = np.asarray(queries.source_uid_B)
  order_N = store.rows_by_uid
  places_B = np.searchsorted(store.uids, source_uid_B, sorter=order_N)
  rows_B = order_N[np.minimum(places_B, len(order_N) - 1)]
  return np.where((store.uids[rows_B] == source_uid_B) & (source_uid_B != 0), rows_B, -1)


def sentences(queries: MaskedQueries) -> tuple[np.ndarray, np.ndarray]:
  """Returns the wordpieces `[B, L]` of the queries before masking, and their counts `[B]`.

  If a span has more wordpieces than are predicted, the remaining ones are `ANY`.
  """
  predicted_BxM = np.asarray(queries.mlm_weights_BxM) > 0
  masks_BxM = np.take_along_axis(queries.query.ids, queries.mlm_positions_BxM, axis=1)
  masks_BxM = np.where(predicted_BxM, masks_BxM, ANY)
  ids_BxL = queries.unmasked.ids
  ids_BxL[(ids_BxL[:, :, None] == masks_BxM[:, None, :]).any(axis=2)] = ANY
  lengths_B = np.maximum(queries.query.mask.sum(axis=1) - 2, 0)
  sentences_BxL = np.where(np.arange(ids_BxL.shape[1] - 1) < lengths_B[:, None], ids_BxL[:, 1:], 0)
  return sentences_BxL, lengths_B


def holds(
  bodies_FxP: np.ndarray, query_F: np.ndarray, sentences_BxL: np.ndarray, lengths_B: np.ndarray
) -> np.ndarray:
  """Returns bool `[F]`, True where a body contains the whole sentence of its query.

  Args:
    query_F: The query that each body belongs to.
    sentences_BxL: Wordpieces; some may be `ANY`.
    lengths_B: Numbers of wordpieces; the others are 0.
  """
  # A rare wordpiece rules out most positions; vocabularies usually end with their rarest ones.
  anchor_B = sentences_BxL.argmax(axis=1)
  rarest_B = np.take_along_axis(sentences_BxL, anchor_B[:, None], axis=1)[:, 0]
  wanted_F = np.where(rarest_B > 0, rarest_B, -1)[query_F]
  body_S, place_S = np.nonzero(bodies_FxP == wanted_F[:, None])
  first_S = place_S - anchor_B[query_F[body_S]]
  inside = (first_S >= 0) & (first_S + lengths_B[query_F[body_S]] <= bodies_FxP.shape[1])
  body_S, first_S = body_S[inside], first_S[inside]
  for place in range(sentences_BxL.shape[1]):
    if not len(body_S):
      break
    query_S = query_F[body_S]
    column_S = np.minimum(first_S + place, bodies_FxP.shape[1] - 1)
    wanted_S = sentences_BxL[query_S, place]
    alive = (place >= lengths_B[query_S]) | (wanted_S == ANY)
    alive |= bodies_FxP[body_S, column_S] == wanted_S
    body_S, first_S = body_S[alive], first_S[alive]
  found_F = np.zeros(len(bodies_FxP), bool)
  found_F[body_S] = True
  return found_F


def find_answering(
  queries: MaskedQueries, ids_BxR: np.ndarray, *, store: PassageStore
) -> np.ndarray:
  """Returns bool `[B, R]`, True where a passage answers a query."""
  runs_SxM, lengths_S, query_S = _runs(queries)
  trivial_BxR = find(queries, ids_BxR, store=store)
  run_F, place_F = np.nonzero((ids_BxR >= 0)[query_S])
  bodies_FxP, _ = store.body_ids(
    ids_BxR[query_S[run_F], place_F], length=store.metadata.max_passage_length
  )
  holds_SxR = np.zeros((len(query_S), ids_BxR.shape[1]), bool)
  holds_SxR[run_F, place_F] = holds(bodies_FxP, run_F, runs_SxM, lengths_S)
  answers_BxR = (ids_BxR >= 0) & ~trivial_BxR
  np.logical_and.at(answers_BxR, query_S, holds_SxR)
  return answers_BxR


def _runs(queries: MaskedQueries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the wordpieces `[S, M]` of runs of adjacent masks, their counts, and their queries."""
  predicted_BxM = np.asarray(queries.mlm_weights_BxM) > 0
  positions_BxM = np.asarray(queries.mlm_positions_BxM)
  begins_BxM = np.diff(positions_BxM, axis=1, prepend=-1) != 1
  query_F, slot_F = np.nonzero(predicted_BxM)
  # No mask is at position 0, where every query has [CLS], so each query begins a run.
  run_F = np.cumsum(begins_BxM[query_F, slot_F]) - 1
  first_S = np.flatnonzero(np.diff(run_F, prepend=-1))
  place_F = np.arange(len(run_F)) - first_S[run_F]
  runs_SxM = np.zeros((len(first_S), positions_BxM.shape[1]), np.int64)
  runs_SxM[run_F, place_F] = np.asarray(queries.mlm_targets_BxM)[query_F, slot_F]
  return runs_SxM, np.bincount(run_F, minlength=len(first_S)), query_F[first_S]
