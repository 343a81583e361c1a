"""Evaluates retrieval and answers on questions; writes predictions and a result card."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from realm_jax import choices
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation import open_qa, prediction_files, result_card
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.fusion_tuning import answered_questions
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import System, open_system
from realm_jax.labels.answer_matching import match_answers
from realm_jax.saved.opening import Sources

Format = Literal["dpr", "trec"]


def evaluate_open_qa(
  questions: Sequence[Question],
  *,
  questions_file: str,
  sources: Sources,
  asking: Asking,
  predictions: str | None,
  against: str | None,
  train_questions: str | None,
  tune_on: str | None,
  output: str | None,
  formats: Sequence[Format],
) -> dict:
  """Answers the questions and reports scores; see `realm evaluate` for the arguments."""
  for name in formats:
    choices.check(Format, formats=name)
  if formats and output is None:
    raise ValueError(f"--formats={','.join(formats)} without a directory; give --output")
  train_answers = None
  if train_questions is not None:
    train_answers = [a for question in read_questions(train_questions) for a in question.answers]
  # Read first, so that a mismatched file is rejected before anything is evaluated.
  other = against and prediction_files.read_scores(against, questions)
  if predictions is not None:
    evaluated = _read(predictions, questions)
  else:
    development = None
    if tune_on is not None:
      known = read_questions(tune_on)
      if {question.text for question in questions} <= {question.text for question in known}:
        raise ValueError(f"tune_on={tune_on} has the questions to evaluate; tune on others")
      development = answered_questions(known)
    system = open_system(sources, asking, development)
    evaluated = _ask(
      questions, system=system, asking=asking, train_answers=train_answers, formats=formats
    )
  compared = other and (f"{against} ({other.missing} questions missing)", other.scores)
  return result_card.publish(
    evaluated, inputs={"questions": questions_file}, against=compared or None, output=output
  )


def _ask(
  questions: Sequence[Question],
  *,
  system: System,
  asking: Asking,
  train_answers: Sequence[str] | None,
  formats: Sequence[Format],
) -> Evaluated:
  store = system.corpus.store
  outcomes = open_qa.evaluate_questions(
    system.retrieve,
    questions,
    answer=system.answer,
    retrieve_k=max(asking.recall_at),
    batch_size=asking.batch_size,
  )
  seen = [i for outcome in outcomes for i in (*outcome.passage_ids, *outcome.read_ids)]
  matcher = match_answers(
    questions, store=store, tokenizer=system.corpus.tokenizer, rows=np.array(seen, np.int64)
  )
  scores = open_qa.question_scores(outcomes, matcher=matcher, recall_at=asking.recall_at)
  lines = prediction_files.jsonl_lines(outcomes, scores=scores)
  files = {"predictions.jsonl": "".join(f"{line}\n" for line in lines)}
  if "dpr" in formats:
    files["retrieved_dpr.json"] = prediction_files.dpr_json(outcomes, store=store, matcher=matcher)
  if "trec" in formats:
    files["retrieved.trec"] = run_text(passage_run(outcomes), tag=system.measured["retriever"])
  return Evaluated(
    measured=system.measured,
    scores=scores,
    groups=open_qa.question_groups(outcomes, scores=scores, train_answers=train_answers),
    files=files,
  )


def _read(predictions: str, questions: Sequence[Question]) -> Evaluated:
  found = prediction_files.read_scores(predictions, questions)
  measured = {"predictions": predictions, "missing predictions": found.missing}
  return Evaluated(measured=measured, scores=found.scores)
