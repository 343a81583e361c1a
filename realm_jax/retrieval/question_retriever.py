"""Retrieves a beam of passages for each question, and the reader's inputs for the best of them.

The embeddings of the beam come from the index and are not updated; only the query encoder is
trained to score them. Labels come from a matcher prepared in advance; nothing is tokenized here.
"""

import dataclasses
from typing import Literal, Protocol

import numpy as np

from realm_jax.corpus.passage_store import Passages
from realm_jax.devices.datatypes import (
  Questions,
  RetrievedQuestions,
  SearchResults,
  batch_of,
  named_arrays,
)
from realm_jax.foundations import choices
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import joint_tokens, passage_tokens
from realm_jax.retrieval.passage_finder import PassageFinder


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamConfig(choices.Checked):
  """Sizes of a question's beam.

  Attributes:
    beam_size: R, the number of passages with trained retrieval scores.
    num_read: K, the number of best passages that the span reader reads.
    joint_length: T, the length of question and passage together, in wordpieces.
    order: How passages are ranked: "exact", by inner products with the index's embeddings, or
      "searcher", by the searcher's possibly approximate scores (as in the released ORQA).
  """

  beam_size: choices.Count = 5000
  num_read: choices.Count = 5
  joint_length: choices.PassageLength = 320
  order: Literal["exact", "searcher"] = "exact"

  def __post_init__(self):
    super().__post_init__()
    if self.num_read > self.beam_size:
      raise ValueError(
        f"num_read={self.num_read} of beam_size={self.beam_size}; read no more than the beam holds"
      )


class Matcher(Protocol):
  """Knows which passages contain an answer to which question, and where."""

  def contains(self, question_index_B: np.ndarray, ids_BxR: np.ndarray) -> np.ndarray:
    """Returns bool `[B, R]`; False for negative ids."""
    ...

  def spans(self, question_index: int, row: int) -> np.ndarray:
    """Returns `[n, 2]`, first and last wordpiece of each answer in the passage's body."""
    ...


@dataclasses.dataclass(eq=False, kw_only=True)
class QuestionRetriever(PassageFinder):
  """Finds the beam of each question.

  Attributes:
    loaded: The generation to search, with its embeddings; `use` replaces it between retrievals.
    store: The knowledge corpus; its rows are those of the index.
    max_span_width: Maximum wordpieces of a span.
    matcher: Provides the labels; None labels nothing.
    fresh_passage_length: P, for embedding the passages read afresh; None uses the index's.
  """

  loaded: LoadedGeneration
  store: Passages
  config: BeamConfig
  max_span_width: int
  matcher: Matcher | None = None
  fresh_passage_length: int | None = None

  def __post_init__(self):
    self.use(self.loaded)

  def use(self, loaded: LoadedGeneration) -> None:
    if loaded.embeddings_NxE is None:
      raise ValueError("questions need the embeddings of the index; load the generation with them")
    self.loaded, self.searcher = loaded, loaded.searcher
    self._embeddings_NxE = loaded.embeddings_NxE

  @property
  def num_found(self) -> int:
    return min(self.config.beam_size, max(len(self.store), self.config.num_read))

  def select(
    self, found: SearchResults, queries_BxE: np.ndarray, questions: Questions
  ) -> tuple[np.ndarray, dict[str, float]]:
    """Returns the ids `[B, R]` of each question's beam, best first."""
    return self._ordered(queries_BxE, found.ids_BxK), {}

  def in_flight(self, batch: RetrievedQuestions) -> dict:
    questions = Questions(batch.query, batch.question_index_B, batch.weights_B)
    return {**named_arrays(questions), "passage_ids": batch.passage_ids_BxR}

  def resume(self, in_flight: dict) -> RetrievedQuestions:
    """Gathers the batch that a checkpoint had in flight again, without searching.

    The embeddings are those of the current generation, which may be a newer one.
    """
    saved = {name: np.asarray(value) for name, value in in_flight.items()}
    return self.gather(batch_of(Questions, saved), saved["passage_ids"])

  def _ordered(self, queries_BxE: np.ndarray, ids_BxR: np.ndarray) -> np.ndarray:
    if self.config.order == "searcher":
      return ids_BxR
    embeddings_BxRxE = self._embeddings_NxE[np.maximum(ids_BxR, 0)].astype(np.float32)
    scores_BxR = np.einsum("BE,BRE->BR", queries_BxE, embeddings_BxRxE, optimize=True)
    scores_BxR[ids_BxR < 0] = -np.inf
    order_BxR = np.argsort(-scores_BxR, axis=1, kind="stable")
    return np.take_along_axis(ids_BxR, order_BxR, axis=1)

  def gather(self, questions: Questions, ids_BxR: np.ndarray) -> RetrievedQuestions:
    """Gathers the embeddings to score and the passages to read of each beam."""
    config = self.config
    unlabelled = to_read(
      questions,
      ids_BxR,
      self._embeddings_NxE[np.maximum(ids_BxR, 0)],
      store=self.store,
      config=config,
      max_span_width=self.max_span_width,
    )
    read_BxK = ids_BxR[:, : config.num_read]
    if self.fresh_passage_length is not None:
      passage = passage_tokens(self.store, read_BxK, length=self.fresh_passage_length)
      unlabelled = dataclasses.replace(unlabelled, passage=passage)
    if self.matcher is None:
      return unlabelled
    has_answer_BxR = self.matcher.contains(questions.index_B, ids_BxR)
    return dataclasses.replace(
      unlabelled,
      has_answer_BxR=has_answer_BxR & (questions.weights_B[:, None] > 0),
      gold_BxKxTxW=self._gold(self.matcher, questions, read_BxK, unlabelled),
    )

  def _gold(
    self,
    matcher: Matcher,
    questions: Questions,
    read_BxK: np.ndarray,
    unlabelled: RetrievedQuestions,
  ) -> np.ndarray:
    joint, gold_BxKxTxW = unlabelled.joint, unlabelled.gold_BxKxTxW.copy()
    firsts_B = questions.query.mask.sum(axis=-1)  # of the body's wordpieces
    lasts_BxK = joint.mask.sum(axis=-1) - 2  # before the final [SEP]
    for b, k in zip(*np.nonzero((read_BxK >= 0) & (questions.weights_B[:, None] > 0)), strict=True):
      spans = matcher.spans(int(questions.index_B[b]), int(read_BxK[b, k])) + firsts_B[b]
      widths = spans[:, 1] - spans[:, 0]
      kept = (widths < gold_BxKxTxW.shape[-1]) & (spans[:, 1] <= lasts_BxK[b, k])
      gold_BxKxTxW[b, k, spans[kept, 0], widths[kept]] = True
    return gold_BxKxTxW


def to_read(
  questions: Questions,
  ids_BxR: np.ndarray,
  embeddings_BxRxE: np.ndarray,
  *,
  store: Passages,
  config: BeamConfig,
  max_span_width: int,
) -> RetrievedQuestions:
  """Returns questions with their beams, without labels; the reader reads the first of each."""
  joint = joint_tokens(
    store, questions.query, ids_BxR[:, : config.num_read], length=config.joint_length
  )
  num_widths = min(max_span_width, joint.shape[-1])
  return RetrievedQuestions(
    query=questions.query,
    weights_B=questions.weights_B,
    question_index_B=questions.index_B,
    passage_ids_BxR=ids_BxR,
    embeddings_BxRxE=embeddings_BxRxE,
    has_answer_BxR=np.zeros(ids_BxR.shape, bool),
    joint=joint,
    gold_BxKxTxW=np.zeros((*joint.shape, num_widths), bool),
    passage=None,
  )
