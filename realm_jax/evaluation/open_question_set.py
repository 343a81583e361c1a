"""Evaluates retrieval and answers on questions; writes predictions and files for other programs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from realm_jax.data.questions import Question
from realm_jax.evaluation import open_qa, prediction_files
from realm_jax.evaluation.answer_matching import match_answers
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
      tokenizer=system.corpus.tokenizer,
      rows=np.array(seen, np.int64),
    )
    scores = open_qa.question_scores(outcomes, matcher=matcher, recall_at=self.asking.recall_at)
    files = {"predictions.jsonl": prediction_files.answered(outcomes, scores=scores)}
    if "dpr" in self.formats:
      dpr = prediction_files.dpr_json(outcomes, store=store, matcher=matcher)
      files["retrieved_dpr.json"] = dpr
    if "trec" in self.formats:
      files["retrieved.trec"] = run_text(passage_run(outcomes), tag=system.measured["retriever"])
    return Evaluated(
      measured=system.measured,
      scores=scores,
      groups=open_qa.question_groups(outcomes, scores=scores, train_answers=self.train_answers),
      files=files,
    )

  def read(self, predictions: str) -> Evaluated:
    return prediction_files.read(predictions, self.questions)
