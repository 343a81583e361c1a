"""Masked queries that another passage answers.

See `retrieval.trivial_passages`. BM25 searches with the whole sentence, masked words included.
"""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.batches import Features
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.index.words.bm25 import open_bm25
from realm_jax.retrieval import trivial_passages

_SEARCHED = 20  # passages found for a sentence; few of those further down have the span


class AnswerableQueries:
  """Keeps the masked queries that passages of a corpus answer."""

  def __init__(self, store: PassageStore):
    self._store, self._retriever = store, open_bm25(store)

  def settings(self) -> dict[str, prepared_examples.Setting]:
    """Returns what determines which queries are kept."""
    return {
      "answerable_from": self._store.fingerprint,
      "retriever": "bm25",
      "searched": _SEARCHED,
    }

  def keep(self, part: Features) -> Features:
    """Returns the answerable rows of a part."""
    queries = batches.masked_queries(part)
    ids_BxR = self._search(queries)
    answers_BxR = trivial_passages.find_answering(queries, ids_BxR, store=self._store)
    return {name: rows[answers_BxR.any(axis=1)] for name, rows in part.items()}

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
