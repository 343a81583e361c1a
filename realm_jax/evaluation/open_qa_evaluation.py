"""Evaluates retrieval and answers on questions; writes predictions and a result card."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from realm_jax import atomic_files, choices
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation import open_qa, prediction_files, result_card
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.fusion_tuning import answered_questions
from realm_jax.evaluation.systems import System, open_system
from realm_jax.labels.answer_matching import AnswerMatcher, match_answers
from realm_jax.saved.opening import Sources

Format = Literal["dpr", "trec"]


@dataclasses.dataclass(frozen=True)
class Evaluated:
  """Scores and groups of all questions, and their provenance.

  Attributes:
    scores: Scores by name, `[n]` each.
    groups: Members by name, `[n]` each.
    outcomes: Outcome of each question; empty where predictions were read from a file.
    store: The corpus; None if predictions were read from a file.
    matcher: Knows which passages contain an answer; None if predictions were read from a file.
  """

  scores: dict[str, np.ndarray]
  groups: dict[str, np.ndarray]
  measured: Mapping[str, str | int]
  outcomes: Sequence[open_qa.Outcome] = ()
  store: PassageStore | None = None
  matcher: AnswerMatcher | None = None


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
  train_answers = None
  if train_questions is not None:
    train_answers = [a for question in read_questions(train_questions) for a in question.answers]
  # Read first, so that a mismatched file is rejected before anything is evaluated.
  other = against and prediction_files.read_scores(against, questions)
  if predictions is not None:
    evaluated = _read(predictions, questions)
  else:
    development = tune_on and answered_questions(read_questions(tune_on))
    system = open_system(sources, asking, development or None)
    evaluated = _ask(questions, system=system, asking=asking, train_answers=train_answers)
  measured = {**evaluated.measured, **result_card.files(questions=questions_file)}
  card = result_card.make(measured, evaluated.scores, groups=evaluated.groups)
  if other:
    compared = f"{against} ({other.missing} questions missing)"
    card["against"] = result_card.against(compared, evaluated.scores, other.scores)
  page = result_card.markdown(card)
  if output is not None:
    _write(output, card, page, evaluated, formats)
  print(page, flush=True)
  return card["figures"]


def _ask(
  questions: Sequence[Question],
  *,
  system: System,
  asking: Asking,
  train_answers: Sequence[str] | None,
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
  return Evaluated(
    scores=scores,
    groups=open_qa.question_groups(outcomes, scores=scores, train_answers=train_answers),
    measured=system.measured,
    outcomes=outcomes,
    store=store,
    matcher=matcher,
  )


def _read(predictions: str, questions: Sequence[Question]) -> Evaluated:
  found = prediction_files.read_scores(predictions, questions)
  measured = {"predictions": predictions, "missing predictions": found.missing}
  return Evaluated(scores=found.scores, groups={}, measured=measured)


def _write(
  output: str, card: dict, page: str, evaluated: Evaluated, formats: Sequence[Format]
) -> None:
  write = lambda name, text: atomic_files.write_text(os.path.join(output, name), text)  # noqa: E731
  write("figures.json", json.dumps(card, indent=2) + "\n")
  write("card.md", page)
  if not evaluated.outcomes:
    return
  lines = prediction_files.jsonl_lines(evaluated.outcomes, scores=evaluated.scores)
  write("predictions.jsonl", "\n".join(lines) + "\n")
  store, matcher = evaluated.store, evaluated.matcher
  if "dpr" in formats and store is not None and matcher is not None:
    retrieved = prediction_files.dpr_json(
      evaluated.outcomes, title=store.title, text=store.text, matcher=matcher
    )
    write("retrieved_dpr.json", retrieved)
  if "trec" in formats:
    tag = str(evaluated.measured["retriever"])
    write("retrieved.trec", run_text(passage_run(evaluated.outcomes), tag=tag))
