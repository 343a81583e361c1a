"""Masked queries that another passage answers.

See `retrieval.trivial_passages`. BM25 searches with the whole sentence, masked words included.
"""

import dataclasses
from typing import Literal

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.batches import Features
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.foundations import choices
from realm_jax.index.bm25 import open_bm25
from realm_jax.retrieval import trivial_passages

_SEARCHED = 20  # passages found for a sentence; few of those further down have the span


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerableConfig(choices.Checked):
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
    super().__post_init__()
    given = [f"{n}={value}" for n, value in vars(self).items() if value != getattr(type(self), n)]
    if given and self.answerable_from is None:
      raise ValueError(
        f"{', '.join(given)}, but no answerable_from; give the corpus whose passages answer"
      )


class AnswerableQueries:
  """Keeps the masked queries that passages of a corpus answer."""

  def __init__(self, store: PassageStore, *, config: AnswerableConfig):
    self._store, self._retriever, self._config = store, open_bm25(store), config

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
    answers_BxR = trivial_passages.find_answering(queries, ids_BxR, store=self._store)
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
      self._store.vocabulary.decode(sentence_L[known_L])
      for sentence_L, known_L in zip(sentences_BxL, known_BxL, strict=True)
    ]
    return self._retriever.retrieve(texts, k=_SEARCHED).ids_BxK
