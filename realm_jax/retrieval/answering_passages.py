"""Passages that answer a masked query.

A passage answers if it holds what is predicted: every run of adjacent masked wordpieces. Passages
that hold the sentence itself do not count.
"""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.retrieval import trivial_passages


def find(queries: MaskedQueries, ids_BxR: np.ndarray, *, store: PassageStore) -> np.ndarray:
  """Returns bool `[B, R]`, True where a passage answers a query."""
  runs_SxM, lengths_S, query_S = _runs(queries)
  trivial_BxR = trivial_passages.find(queries, ids_BxR, store=store)
  run_F, place_F = np.nonzero((ids_BxR >= 0)[query_S])
  bodies_FxP, _ = store.body_ids(
    ids_BxR[query_S[run_F], place_F], length=store.metadata.max_passage_length
  )
  holds_SxR = np.zeros((len(query_S), ids_BxR.shape[1]), bool)
  holds_SxR[run_F, place_F] = trivial_passages.holds(bodies_FxP, run_F, runs_SxM, lengths_S)
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
