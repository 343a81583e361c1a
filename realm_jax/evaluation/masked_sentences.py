"""Evaluates retrieval for masked sentences, and the answers that fill them."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from realm_jax.answering.mask_filler import MaskFiller
from realm_jax.answering.open_answerer import mask_filler
from realm_jax.checkpoints.opening import Opened
from realm_jax.data.answers import contains
from realm_jax.data.question_batches import masked_query_batches
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.evaluation.open_questions import read_predictions
from realm_jax.evaluation.ranking_metrics import recalls
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import Asking, System
from realm_jax.foundations import progress

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
class Prediction:
  """The outcome of one question.

  Attributes:
    rank: Rank of the first right passage, from 1; None if there is none.
    prediction: The answer that fills the mask; None if nothing was read.
    probability: Its p(y|x).
    exact_match: Whether its wordpieces are those of the whole reference.
  """

  question: Question
  rank: int | None
  prediction: str | None = None
  probability: float = 0.0
  exact_match: bool = False

  def record(self) -> dict:
    """Returns what `predictions.jsonl` says besides the question and its metrics."""
    answer = {"prediction": self.prediction, "probability": self.probability}
    return {**(answer if self.prediction is not None else {}), "rank": self.rank}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedSentences:
  """Sentences with one masked span, as an `Evaluator`.

  A checkpoint of `realm pretrain` fills the masks; all other systems only retrieve.
  """

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  asking: Asking

  def evaluate(self, system: System) -> Evaluated:
    extra, measured = num_extra(self.questions), system.measured
    retrieve_k = max(self.asking.recall_at) + extra
    if system.opened is not None and system.opened.saved.fills_masks:
      predictions = self._fill(system.opened, retrieve_k=retrieve_k, extra=extra)
      measured = {**measured, "reader": f"fills masks, {self.asking.book} book"}
    elif self.asking.book == "closed":
      raise ValueError("book=closed, but nothing is read; give --checkpoints of `realm pretrain`")
    else:
      text = system.store.text
      predictions = rank_passages(system.retrieve, self.questions, text=text, k=retrieve_k)
    return Evaluated(
      measured=measured,
      scores=scores(predictions, recall_at=self.asking.recall_at),
      questions=self.questions,
      records=[prediction.record() for prediction in predictions],
    )

  def read(self, predictions: str) -> Evaluated:
    return read_predictions(predictions, self.questions)

  def _fill(self, opened: Opened, *, retrieve_k: int, extra: int) -> list[Prediction]:
    description = opened.saved.description
    batches = masked_query_batches(
      self.questions,
      tokenizer=opened.store.tokenizer,
      query_length=description.query_length,
      max_masks=description.max_masks,
      batch_size=self.asking.batch_size,
    )
    return predict(
      mask_filler(opened),
      progress.track(batches, what="batches of questions"),
      retrieve_k=retrieve_k,
      without_retrieval=self.asking.book == "closed",
      num_extra=extra,
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
      rank = rank_of_right_passage(question, ids_BxK[row], store.text)
      answer = tokenizer.decode(found.ids)
      predictions.append(Prediction(question, rank, answer, found.probability, same))
  return predictions


def rank_passages(
  retrieve: Callable, questions: Sequence[Question], *, text: Callable[[int], str], k: int
) -> list[Prediction]:
  """Ranks passages for masked sentences, and fills no mask.

  Args:
    retrieve: Called as `retrieve(texts, k=...)`, finds the best passages; see `QuestionSearch`.
  """
  ids_BxK = retrieve([question.masked_text for question in questions], k=k).ids_BxK
  return [
    Prediction(question, rank_of_right_passage(question, ids_K, text))
    for question, ids_K in zip(questions, ids_BxK, strict=True)
  ]


def scores(predictions: Sequence[Prediction], *, recall_at: Sequence[int]) -> dict[str, np.ndarray]:
  """Returns `recall@k` and, if the masks were filled, `exact_match`, `[n]` over the questions."""
  found = recalls([(prediction.rank or np.inf) - 1 for prediction in predictions], recall_at)
  exact = [float(p.exact_match) for p in predictions if p.prediction is not None]
  return {**found, "exact_match": np.array(exact)} if exact else found


def _trivial(
  questions: Sequence[Question], ids_BxR: np.ndarray, *, text: Callable[[int], str]
) -> np.ndarray:
  """Returns bool `[B, R]`, True where a passage gives the answer of a question away."""
  trivial_BxR = np.zeros(ids_BxR.shape, bool)
  for row, question in enumerate(questions):
    trivial_BxR[row] = [i >= 0 and gives_away(question, text(i)) for i in ids_BxR[row].tolist()]
  return trivial_BxR
