"""Evaluates retrieval for masked sentences, and the answers that fill them."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from realm_jax.answering.mask_filler import MaskFiller
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.text.answer_tokens import contains

_EXTRA_PASSAGES = 8


def num_extra(questions: Sequence[Question]) -> int:
  """Returns how many more passages to find, in place of those that give an answer away."""
  return 0 if all(question.passage for question in questions) else _EXTRA_PASSAGES


def rank_of_right_passage(
  question: Question, ids_K: np.ndarray, text: Callable[[int], str]
) -> int | None:
  """Returns the rank of the first right passage, from 1; None if there is none.

  It has the sentence that states the fact or, if that is unknown, the answer in whole tokens. One
  that gives the answer away has no rank.

  Args:
    text: Returns the text of a passage.
  """
  rank = 0
  for passage in (text(i) if i >= 0 else "" for i in ids_K.tolist()):
    if gives_away(question, passage):
      continue
    rank += 1
    if question.passage in passage if question.passage else contains(passage, question.answer):
      return rank
  return None


def gives_away(question: Question, passage: str) -> bool:
  """Returns whether a passage has the masked sentence itself, if no right one is known."""
  return not question.passage and question.text in passage


Batch = tuple[Sequence[Question], MaskedQueries]


@dataclasses.dataclass(frozen=True)
class Filled:
  """An answer that fills a mask.

  Attributes:
    probability: Its p(y|x).
    exact_match: Whether its wordpieces are those of the whole reference.
  """

  answer: str
  probability: float
  exact_match: bool


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The outcome of one question.

  Attributes:
    rank: Rank of the first right passage, from 1; None if there is none.
    filled: The answer; None if nothing was read.
  """

  question: Question
  rank: int | None
  filled: Filled | None = None

  def figures(self, recall_at: Sequence[int]) -> dict[str, float]:
    """Returns `recall@k` and, if the mask was filled, `exact_match`."""
    found = {f"recall@{k}": float(self.rank is not None and self.rank <= k) for k in recall_at}
    return (
      found if self.filled is None else {**found, "exact_match": float(self.filled.exact_match)}
    )


def predict(
  filler: MaskFiller,
  batches: Iterable[Batch],
  *,
  retrieve_k: int,
  without_retrieval: bool,
  num_extra: int = 0,
) -> list[Prediction]:
  """Fills the masks of all questions, and ranks passages for them.

  A passage that has the masked sentence itself is neither read nor ranked.

  Args:
    batches: Questions with their queries; rows past the questions are empty.
    without_retrieval: Reads only the null passage.
    num_extra: Number of passages to find in place of those that are not read.
  """
  store, tokenizer = filler.corpus.store, filler.corpus.tokenizer
  predictions = []
  for questions, queries in batches:
    texts = [question.masked_text for question in questions]
    answers = filler.fill(
      queries,
      texts=texts,
      without_retrieval=without_retrieval,
      trivial=functools.partial(_trivial, questions, text=store.text),
      num_extra=num_extra,
    )
    ids_BxK = filler.retrieve(queries, k=retrieve_k, texts=texts)
    references = tokenizer.encode_batch([question.answer for question in questions])
    for row, (question, reference) in enumerate(zip(questions, references, strict=True)):
      found = answers[row]
      same = found.ids == tuple(reference.tolist())
      filled = Filled(tokenizer.decode(found.ids), found.probability, same)
      rank = rank_of_right_passage(question, ids_BxK[row], store.text)
      predictions.append(Prediction(question, rank, filled))
  return predictions


def rank_passages(
  retrieve: Callable, questions: Sequence[Question], *, text: Callable[[int], str], k: int
) -> list[Prediction]:
  """Ranks passages for masked sentences, and fills no mask.

  Args:
    retrieve: Called as `retrieve(texts, k=...)`, finds the best passages; see `QuestionSearch`.
    text: Returns the text of a passage.
  """
  ids_BxK = retrieve([question.masked_text for question in questions], k=k).ids_BxK
  return [
    Prediction(question, rank_of_right_passage(question, ids_K, text))
    for question, ids_K in zip(questions, ids_BxK, strict=True)
  ]


def scores(predictions: Sequence[Prediction], *, recall_at: Sequence[int]) -> dict[str, np.ndarray]:
  """Returns each metric by name, `[n]` over the questions."""
  rows = [prediction.figures(recall_at) for prediction in predictions]
  return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


def _trivial(
  questions: Sequence[Question], ids_BxR: np.ndarray, *, text: Callable[[int], str]
) -> np.ndarray:
  """Returns bool `[B, R]`, True where a passage gives the answer of a question away."""
  trivial_BxR = np.zeros(ids_BxR.shape, bool)
  for row, question in enumerate(questions):
    trivial_BxR[row] = [i >= 0 and gives_away(question, text(i)) for i in ids_BxR[row].tolist()]
  return trivial_BxR
