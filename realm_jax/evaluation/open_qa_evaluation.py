"""Evaluates retrieval and answers on questions; writes predictions and the result card."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from realm_jax import atomic_files, object_store, progress, tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation import open_qa, prediction_files, resampling, result_card, source_version
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.labels.answer_matching import AnswerMatcher, match_answers
from realm_jax.saved import question_setup, saved_models

Retriever = Literal["dual_encoder", "bm25"]
FORMATS = ("dpr", "trec")


@dataclasses.dataclass(frozen=True)
class _Asked:
  """What came of asking: scores and groups of every question, and what gave them."""

  scores: dict[str, np.ndarray]
  groups: dict[str, np.ndarray]
  measured: dict[str, str | int]
  outcomes: Sequence[open_qa.Outcome] = ()
  store: PassageStore | None = None
  matcher: AnswerMatcher | None = None


def evaluate_open_qa(
  questions: Sequence[Question],
  *,
  questions_file: str,
  checkpoints: str | None,
  passages: str | None,
  index: str | None,
  retriever: Retriever,
  predictions: str | None,
  against: str | None,
  train_questions: str | None,
  output: str | None,
  formats: Sequence[str],
  step: int | None,
  generation: int | None,
  search: Literal["auto", "exact"],
  answer_text: Literal["raw", "spaced"],
  recall_at: Sequence[int],
  batch_size: int,
) -> dict:
  """Asks the questions and reports; see `realm evaluate` for the arguments."""
  unknown = sorted(set(formats) - set(FORMATS))
  if unknown:
    raise ValueError(f"formats has {unknown[0]!r}; choose from {', '.join(FORMATS)}")
  train_answers = None
  if train_questions is not None:
    train_answers = [a for question in read_questions(train_questions) for a in question.answers]
  # Read first: a file that does not fit is refused before anything is asked.
  other = against and prediction_files.read_scores(against, questions)
  if predictions is not None:
    asked = _read(predictions, questions)
  else:
    if passages is None:
      raise ValueError("passages is not given; name the corpus to search, or a file of predictions")
    store = PassageStore(passages)
    if retriever == "bm25":
      predictor, measured = _bm25(store), {"retriever": "BM25"}
    else:
      predictor, measured = _of_checkpoint(
        checkpoints, passages, index, step, generation, search, answer_text, batch_size
      )
    asked = _ask(
      predictor,
      questions,
      store=store,
      measured=measured,
      train_answers=train_answers,
      recall_at=recall_at,
      batch_size=batch_size,
    )
  card = {
    "measured": {
      **asked.measured,
      "questions": f"{questions_file} ({len(questions)}, SHA-256 {_digest(questions_file)})",
      "code": source_version.source_version(),
    },
    "figures": open_qa.summary(asked.scores, groups=asked.groups),
    "intervals": resampling.bootstrap_intervals(asked.scores),
  }
  if other:
    card["against"] = {
      "predictions": f"{against} ({other.missing} questions missing)",
      "figures": {
        name: dataclasses.asdict(resampling.compare(values, other.scores[name]))
        for name, values in asked.scores.items()
        if name in other.scores
      },
    }
  page = result_card.markdown(card)
  if output is not None:
    _write(output, card, page, asked, formats)
  print(page, flush=True)
  return card["figures"]


def _bm25(store: PassageStore) -> Bm25Retriever:
  rows = progress.track(range(len(store)), what="passages for BM25")
  return Bm25Retriever(f"{store.title(row)}\n{store.text(row)}" for row in rows)


def _of_checkpoint(
  checkpoints, passages, index, step, generation, search, answer_text, batch_size
) -> tuple[open_qa.QuestionRetriever, dict]:
  if checkpoints is None or index is None:
    raise ValueError(
      "checkpoints and index are not given; name both, or take --retriever=bm25 or --predictions"
    )
  saved = saved_models.load(checkpoints, step=step)
  given = {"passages": passages, "index": index, "generation": generation, "kind": search}
  if saved.description.span_reader is None:
    predictor = question_setup.open_question_retriever(saved, **given)
    kind = "dual encoder, not fine-tuned"
  else:
    predictor = question_setup.open_question_predictor(
      saved, **given, answer_text=answer_text, batch_size=batch_size
    )
    kind = f"dual encoder and span reader, answers {answer_text}"
  measured = {
    "retriever": kind,
    "checkpoint": f"{checkpoints}, step {saved.step}",
    "index": f"{index}, generation {predictor.generation}, {search} search",
  }
  return predictor, measured


def _ask(predictor, questions, *, store, measured, train_answers, recall_at, batch_size) -> _Asked:
  outcomes = []
  batches = [questions[i : i + batch_size] for i in range(0, len(questions), batch_size)]
  for batch in progress.track(batches, what="batches of questions"):
    outcomes += open_qa.evaluate_questions(
      predictor, batch, retrieve_k=max(recall_at), batch_size=batch_size
    )
  tokenizer = tokenization.load(os.path.join(store.directory, "vocabulary"))
  seen = [i for outcome in outcomes for i in (*outcome.passage_ids, *outcome.read_ids)]
  matcher = match_answers(
    questions, store=store, tokenizer=tokenizer, rows=np.array(seen, np.int64)
  )
  scores = open_qa.question_scores(outcomes, matcher=matcher, recall_at=recall_at)
  return _Asked(
    scores=scores,
    groups=open_qa.question_groups(outcomes, scores=scores, train_answers=train_answers),
    measured={
      **measured,
      "corpus": f"{store.directory} ({len(store)} passages, fingerprint {store.fingerprint})",
    },
    outcomes=outcomes,
    store=store,
    matcher=matcher,
  )


def _read(predictions: str, questions: Sequence[Question]) -> _Asked:
  found = prediction_files.read_scores(predictions, questions)
  measured = {"predictions": predictions, "missing predictions": found.missing}
  return _Asked(scores=found.scores, groups={}, measured=measured)


def _digest(path: str) -> str:
  return hashlib.sha256(object_store.absolute(path).read_bytes()).hexdigest()[:12]


def _write(output: str, card: dict, page: str, asked: _Asked, formats: Sequence[str]) -> None:
  write = lambda name, text: atomic_files.write_text(os.path.join(output, name), text)  # noqa: E731
  write("figures.json", json.dumps(card, indent=2) + "\n")
  write("card.md", page)
  if not asked.outcomes:
    return
  lines = prediction_files.jsonl_lines(asked.outcomes, scores=asked.scores)
  write("predictions.jsonl", "\n".join(lines) + "\n")
  if "dpr" in formats:
    store = asked.store
    retrieved = prediction_files.dpr_json(
      asked.outcomes, title=store.title, text=store.text, matcher=asked.matcher
    )
    write("retrieved_dpr.json", retrieved)
  if "trec" in formats:
    run = prediction_files.trec_run_lines(asked.outcomes, tag=asked.measured["retriever"])
    write("retrieved.trec", "\n".join(run) + "\n")
