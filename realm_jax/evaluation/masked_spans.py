"""Evaluates answers to masked sentences whose answer and passage are known."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from realm_jax.data.questions import Question
from realm_jax.datatypes import MaskedQueries
from realm_jax.inference.mask_filler import MaskFiller


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The outcome of one question.

  Attributes:
    question: The masked sentence.
    answer: The most likely answer.
    probability: Its p(y|x).
    exact_match: Whether it equals the reference.
    rank: Rank of the first right passage, from 1; None if there is none.
  """

  question: Question
  answer: str
  probability: float
  exact_match: bool
  rank: int | None


def predict(
  filler: MaskFiller,
  batches: Iterable[tuple[Sequence[Question], MaskedQueries]],
  *,
  retrieve_k: int,
  without_retrieval: bool,
) -> list[Prediction]:
  """Returns the predictions for all questions.

  An answer matches exactly if its wordpieces are those of the whole reference. A passage is right
  if it contains the sentence that states the fact.

  Args:
    filler: Fills the masks.
    batches: Questions with their queries; rows past the questions are empty.
    retrieve_k: Number of passages to rank.
    without_retrieval: Reads only the null passage.
  """
  store, tokenizer = filler.corpus.store, filler.corpus.tokenizer
  predictions = []
  for questions, queries in batches:
    texts = [question.masked_text for question in questions]
    answers = filler.fill(queries, texts=texts, without_retrieval=without_retrieval)
    ids_BxK = filler.retrieve(queries, k=retrieve_k, texts=texts)
    references = tokenizer.encode_batch([question.answer for question in questions])
    for row, (question, reference) in enumerate(zip(questions, references, strict=True)):
      wanted = question.passage or question.answer
      ranks = (
        rank
        for rank, i in enumerate(ids_BxK[row].tolist(), 1)
        if i >= 0 and wanted in store.text(i)
      )
      predictions.append(
        Prediction(
          question=question,
          answer=tokenizer.decode(answers[row].ids),
          probability=answers[row].probability,
          exact_match=answers[row].ids == tuple(reference.tolist()),
          rank=next(ranks, None),
        )
      )
  return predictions


def figures(predictions: Sequence[Prediction], *, recall_at: Sequence[int]) -> dict:
  """Returns `questions`, `recall@k` and `exact_match`, also for each group under its name."""
  figures = _means(predictions, recall_at)
  for group in sorted({p.question.group for p in predictions} - {""}):
    figures[group] = _means([p for p in predictions if p.question.group == group], recall_at)
  return figures


def _means(predictions: Sequence[Prediction], recall_at: Sequence[int]) -> dict:
  return {
    "questions": len(predictions),
    **{
      f"recall@{k}": round(
        float(np.mean([p.rank is not None and p.rank <= k for p in predictions])), 4
      )
      for k in recall_at
    },
    "exact_match": round(float(np.mean([p.exact_match for p in predictions])), 4),
  }
