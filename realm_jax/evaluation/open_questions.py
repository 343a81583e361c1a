"""Evaluates retrieval and answers on questions; writes predictions and files for other programs."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question
from realm_jax.evaluation import open_qa, prediction_files
from realm_jax.evaluation.answer_matching import AnswerMatcher, match_answers
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import Asking, System
from realm_jax.foundations import choices

Format = Literal["dpr", "trec"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQuestions:
  """Questions with known answers, as an `Evaluator`.

  Attributes:
    train_answers: Answers of the training questions, to tell those seen in training from others.
    formats: Which files of retrieved passages to write.
  """

  kind: ClassVar[str] = "questions"
  settings: ClassVar[frozenset[str]] = frozenset(
    ("recall_at", "batch_size", "train_questions", "formats", "max_questions", "answer_text")
  )
  settings_read: ClassVar[frozenset[str]] = frozenset(("max_questions",))

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  asking: Asking
  train_answers: Sequence[str] | None = None
  formats: Sequence[Format] = ()

  def __post_init__(self):
    for name in self.formats:
      choices.check(Format, formats=name)

  def evaluate(self, system: System) -> Evaluated:
    return self.scored(self.ask(system), system)

  def ask(self, system: System) -> list[open_qa.Outcome]:
    """Returns what the system finds for each question, and its answers."""
    return open_qa.evaluate_questions(
      system.retrieve,
      self.questions,
      answer=system.answer,
      retrieve_k=max(self.asking.recall_at),
      batch_size=self.asking.batch_size,
    )

  def scored(self, outcomes: Sequence[open_qa.Outcome], system: System) -> Evaluated:
    """Scores what a system has found and answered."""
    store = system.store
    seen = [i for outcome in outcomes for i in (*outcome.passage_ids, *outcome.read_ids)]
    matcher = match_answers(
      self.questions,
      store=store,
      tokenizer=system.store.tokenizer,
      rows=np.array(seen, np.int64),
    )
    scores = open_qa.question_scores(outcomes, matcher=matcher, recall_at=self.asking.recall_at)
    files = {}
    if "dpr" in self.formats:
      files["retrieved_dpr.json"] = dpr_json(outcomes, store=store, matcher=matcher)
    if "trec" in self.formats:
      files["retrieved.trec"] = run_text(passage_run(outcomes), tag=system.measured["retriever"])
    return Evaluated(
      measured=system.measured,
      scores=scores,
      records=[_record(outcome) for outcome in outcomes],
      groups=open_qa.question_groups(outcomes, scores=scores, train_answers=self.train_answers),
      files=files,
    )

  def read(self, predictions: str) -> Evaluated:
    return prediction_files.read(predictions, self.questions)


def _record(outcome: open_qa.Outcome) -> dict:
  return {
    **prediction_files.question_record(outcome.question),
    **({"prediction": outcome.prediction} if outcome.read_ids else {}),
    "answers": [dataclasses.asdict(answer) for answer in outcome.answers],
    "read_ids": list(outcome.read_ids),
    "passage_ids": list(outcome.passage_ids),
    "scores": [round(score, 4) for score in outcome.scores],
  }


def dpr_json(
  outcomes: Sequence[open_qa.Outcome],
  *,
  store: PassageStore,
  matcher: AnswerMatcher,
) -> str:
  """Returns the retrieved passages in the format of Dense Passage Retrieval.

  Args:
    outcomes: Outcomes of the matcher's questions, in order.
  """
  records = []
  for row, outcome in enumerate(outcomes):
    ids_1xK = np.array([outcome.passage_ids], np.int64)
    (holds_K,) = matcher.contains(np.array([row]), ids_1xK)
    records.append(
      {
        "question": outcome.question.text,
        "answers": list(outcome.question.answers),
        "ctxs": [
          {
            "id": str(passage_id),
            "title": store.title(passage_id),
            "text": store.text(passage_id),
            "score": str(score),
            "has_answer": holds,
          }
          for passage_id, score, holds in zip(
            outcome.passage_ids, outcome.scores, holds_K.tolist(), strict=True
          )
        ],
      }
    )
  return json.dumps(records, ensure_ascii=False, indent=1) + "\n"
