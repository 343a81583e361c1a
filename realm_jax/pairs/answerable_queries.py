"""Masked queries that another passage answers.

A passage that is found answers a query if it holds what is predicted: every run of adjacent masked
wordpieces. Passages that hold the sentence itself do not count. BM25 searches with the whole
sentence, masked words included.
"""

import dataclasses
from typing import Literal

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.batches import Features
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.foundations import choices
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.retrieval import trivial_passages
from realm_jax.text.wordpieces import WordPieces

_SEARCHED = 20  # passages found for a sentence; few of those further down have the span


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerableConfig:
  """Which masked queries to keep, and which passage they are read with.

  Attributes:
    answerable_from: Directory of a knowledge corpus; keeps the queries that one of its passages
      answers. None keeps all.
    read_with: What `trivial_passage="first"` reads a query with: "own", the passage that it was
      cut from, or "found", the first retrieved passage that answers it, which becomes its source.
      With "found", `trivial_passage="drop"` would leave out the answer.
  """

  answerable_from: str | None = None
  read_with: Literal["own", "found"] = "own"

  def __post_init__(self):
    choices.check_fields(self)
    given = [f"{n}={value}" for n, value in vars(self).items() if value != getattr(type(self), n)]
    if given and self.answerable_from is None:
      raise ValueError(
        f"{', '.join(given)}, but no answerable_from; give the corpus whose passages answer"
      )


class AnswerableQueries:
  """Keeps the masked queries that passages of a corpus answer."""

  def __init__(
    self,
    *,
    store: PassageStore,
    retriever: Bm25Retriever,
    vocabulary: WordPieces,
    config: AnswerableConfig,
  ):
    self._store, self._retriever = store, retriever
    self._vocabulary, self._config = vocabulary, config

  def settings(self) -> dict[str, prepared_examples.Setting]:
    """Returns what determines which queries are kept."""
    return {
      "answerable_from": self._store.fingerprint,
      "retriever": "bm25",
      "searched": _SEARCHED,
      "read_with": self._config.read_with,
    }

  def keep(self, part: Features) -> Features:
    """Returns the answerable rows of a part."""
    queries = batches.masked_queries(part)
    ids_BxR = self._search(queries)
    answers_BxR = find(queries, ids_BxR, store=self._store)
    kept_B = answers_BxR.any(axis=1)
    if self._config.read_with == "found":
      best_Bx1 = np.take_along_axis(ids_BxR, answers_BxR.argmax(axis=1)[:, None], axis=1)
      part = {**part, "source_uid": self._store.uids[np.maximum(best_Bx1, 0)]}
    return {name: rows[kept_B] for name, rows in part.items()}

  def _search(self, queries: MaskedQueries) -> np.ndarray:
    """Returns rows `[B, R]` of passages, best first, -1 where there are too few."""
    sentences_BxL, lengths_B = trivial_passages.sentences(queries)
    known_BxL = sentences_BxL != trivial_passages.ANY
    known_BxL &= np.arange(sentences_BxL.shape[1]) < lengths_B[:, None]
    texts = [
      self._vocabulary.decode(sentence_L[known_L])
      for sentence_L, known_L in zip(sentences_BxL, known_BxL, strict=True)
    ]
    return self._retriever.retrieve(texts, k=_SEARCHED).ids_BxK


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
