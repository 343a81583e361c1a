"""Fills masks: retrieves, reads, and says with what probability and from which passage."""

import dataclasses
from collections.abc import Callable

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.datatypes import MaskedQueries, RetrievedBatch
from realm_jax.inference.reading import Reading
from realm_jax.retrieval.retriever import Retriever, closed_book


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadPassage:
  """A passage that a query was read with.

  Attributes:
    passage_id: row of the store, -1 for the null passage.
    title: empty for the null passage.
    text: empty for the null passage.
    retrieval_probability: p(z|x).
    answer_probability: p(y|z,x) of the answer given.
  """

  passage_id: int
  title: str
  text: str
  retrieval_probability: float
  answer_probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """What fills a mask.

  Attributes:
    ids: its wordpieces.
    probability: p(y|x).
    passages: what it was read from, likeliest first.
  """

  ids: tuple[int, ...]
  probability: float
  passages: tuple[ReadPassage, ...]


class Predictor:
  """Answers masked queries with one checkpoint and one index generation.

  Args:
    params: of the pre-training model.
    read: jitted, `(params, RetrievedBatch) -> Reading`.
    retriever: with the generation's searcher.
    store: the knowledge corpus.
  """

  def __init__(
    self,
    *,
    params: dict,
    read: Callable[[dict, RetrievedBatch], Reading],
    retriever: Retriever,
    store: PassageStore,
  ):
    self._params = params
    self._read = read
    self._retriever = retriever
    self._store = store

  def retrieve(self, queries: MaskedQueries, *, k: int) -> np.ndarray:
    """Returns the ids `[B, k]` of the best passages, without the null passage."""
    _, embeddings = self._retriever.begin(self._params, queries)
    return self._retriever.searcher.search(np.asarray(embeddings, np.float32), k).ids_BxK

  def answer(self, queries: MaskedQueries, *, without_retrieval: bool = False) -> list[Answer]:
    """Returns the best answer of each query; queries without a mask get an empty one.

    Args:
      queries: B masked queries; targets are not looked at.
      without_retrieval: reads each query with the null passage alone (closed-book).
    """
    batch, _ = self._retriever.finish(self._retriever.begin(self._params, queries))
    if without_retrieval:
      batch = closed_book(batch)
    reading = self._read(self._params, batch)
    reading = Reading(
      *(np.asarray(getattr(reading, field.name)) for field in dataclasses.fields(Reading))
    )
    return [self._answer(batch, reading, row) for row in range(len(batch.passage_ids_BxK))]

  def _answer(self, batch: RetrievedBatch, reading: Reading, row: int) -> Answer:
    masks = int(batch.queries.mlm_weights_BxM[row].sum())
    retrieval_K = np.exp(reading.retrieval_log_probs_BxK[row])
    answer_K = np.exp(reading.log_probs_BxCxK[row, 0])
    passages = [
      ReadPassage(
        passage_id=passage_id,
        title=self._store.title(passage_id) if passage_id >= 0 else "",
        text=self._store.text(passage_id) if passage_id >= 0 else "",
        retrieval_probability=float(retrieval_K[slot]),
        answer_probability=float(answer_K[slot]),
      )
      for slot, passage_id in enumerate(batch.passage_ids_BxK[row].tolist())
      if batch.valid_BxK[row, slot]
    ]
    return Answer(
      ids=tuple(reading.answers_BxCxM[row, 0, :masks].tolist()),
      probability=float(np.exp(reading.log_probs_BxC[row, 0])),
      passages=tuple(sorted(passages, key=lambda passage: -passage.retrieval_probability)),
    )
