"""Evaluates retrieval and answers on questions; writes predictions and the result card."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence

import numpy as np

from realm_jax import atomic_files, object_store, progress
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation import open_qa, prediction_files, resampling, result_card, source_version
from realm_jax.evaluation.asking import Asking
from realm_jax.labels.answer_matching import AnswerMatcher, match_answers
from realm_jax.saved.answering_models import question_answerer, question_search
from realm_jax.saved.opening import Corpus, Sources, open_bm25, open_corpus, open_sources

FORMATS = ("dpr", "trec")
_RETRIEVERS = {"dense": "dual encoder", "bm25": "BM25", "hybrid": "dual encoder and BM25"}


@dataclasses.dataclass(frozen=True)
class Evaluated:
  """Scores and groups of every question, and what gave them.

  Attributes:
    scores: Scores by name, `[n]` each.
    groups: Members by name, `[n]` each.
    measured: What was measured.
    outcomes: Outcome of each question; empty where predictions were read from a file.
    store: The corpus; None with a file.
    matcher: Knows which passages hold an answer; None with a file.
  """

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
  sources: Sources,
  asking: Asking,
  predictions: str | None,
  against: str | None,
  train_questions: str | None,
  output: str | None,
  formats: Sequence[str],
) -> dict:
  """Asks the questions and reports; see `realm evaluate` for the arguments."""
  unknown = sorted(set(formats) - set(FORMATS))
  if unknown:
    raise ValueError(f"formats has {unknown[0]!r}; choose from {', '.join(FORMATS)}")
  train_answers = None
  if train_questions is not None:
    train_answers = [a for question in read_questions(train_questions) for a in question.answers]
  # Read first: a file that does not fit is refused before anything is evaluated.
  other = against and prediction_files.read_scores(against, questions)
  if predictions is not None:
    evaluated = _read(predictions, questions)
  else:
    evaluated = _ask(questions, sources=sources, asking=asking, train_answers=train_answers)
  card = {
    "measured": {
      **evaluated.measured,
      "questions": f"{questions_file} ({len(questions)}, SHA-256 {_digest(questions_file)})",
      "code": source_version.source_version(),
    },
    "figures": open_qa.summary(evaluated.scores, groups=evaluated.groups),
    "intervals": resampling.bootstrap_intervals(evaluated.scores),
  }
  if other:
    card["against"] = {
      "predictions": f"{against} ({other.missing} questions missing)",
      "figures": {
        name: dataclasses.asdict(resampling.compare(values, other.scores[name]))
        for name, values in evaluated.scores.items()
        if name in other.scores
      },
    }
  page = result_card.markdown(card)
  if output is not None:
    _write(output, card, page, evaluated, formats)
  print(page, flush=True)
  return card["figures"]


def _ask(
  questions: Sequence[Question],
  *,
  sources: Sources,
  asking: Asking,
  train_answers: Sequence[str] | None,
) -> Evaluated:
  system = _system(sources, asking)
  store, size = system.corpus.store, asking.batch_size
  outcomes = []
  batches = [questions[i : i + size] for i in range(0, len(questions), size)]
  for batch in progress.track(batches, what="batches of questions"):
    outcomes += open_qa.evaluate_questions(
      system.retrieve,
      batch,
      answer=system.answer,
      retrieve_k=max(asking.recall_at),
      batch_size=size,
    )
  seen = [i for outcome in outcomes for i in (*outcome.passage_ids, *outcome.read_ids)]
  matcher = match_answers(
    questions,
    store=store,
    tokenizer=system.corpus.tokenizer,
    rows=np.array(seen, np.int64),
  )
  scores = open_qa.question_scores(outcomes, matcher=matcher, recall_at=asking.recall_at)
  return Evaluated(
    scores=scores,
    groups=open_qa.question_groups(outcomes, scores=scores, train_answers=train_answers),
    measured={
      **system.measured,
      "corpus": f"{store.directory} ({len(store)} passages, fingerprint {store.fingerprint})",
    },
    outcomes=outcomes,
    store=store,
    matcher=matcher,
  )


@dataclasses.dataclass(frozen=True)
class _System:
  """What is evaluated: it finds passages of a corpus, and may answer from them."""

  corpus: Corpus
  measured: dict[str, str]
  retrieve: Callable
  answer: Callable | None = None


def _system(sources: Sources, asking: Asking) -> _System:
  if not sources.passages:
    raise ValueError("passages is not given; name the corpus to search, or a file of predictions")
  if sources.retriever == "bm25" and not sources.checkpoints:
    corpus = open_corpus(sources.passages)
    return _System(corpus, {"retriever": "BM25"}, open_bm25(corpus).retrieve)
  if sources.missing():
    raise ValueError(
      "checkpoints and index are not given; name both, or take --retriever=bm25 or --predictions"
    )
  opened = open_sources(sources)
  measured = {
    "retriever": _RETRIEVERS[sources.retriever],
    "checkpoint": f"{sources.checkpoints}, step {opened.saved.step}",
    "index": f"{sources.index}, generation {opened.loaded.generation}, {sources.search} search",
  }
  if sources.retriever == "hybrid":
    fusion = sources.fusion
    measured["fusion"] = f"by {fusion.by}, weight {fusion.weight:g} of the dual encoder"
  if opened.saved.description.span_reader is None:
    return _System(opened.corpus, measured, question_search(opened).retrieve)
  answerer = question_answerer(opened, batch_size=asking.batch_size, answer_text=asking.answer_text)
  measured["reader"] = f"spans, answers {asking.answer_text}"
  return _System(opened.corpus, measured, answerer.retrieve, answerer.answer)


def _read(predictions: str, questions: Sequence[Question]) -> Evaluated:
  found = prediction_files.read_scores(predictions, questions)
  measured = {"predictions": predictions, "missing predictions": found.missing}
  return Evaluated(scores=found.scores, groups={}, measured=measured)


def _digest(path: str) -> str:
  return hashlib.sha256(object_store.absolute(path).read_bytes()).hexdigest()[:12]


def _write(
  output: str, card: dict, page: str, evaluated: Evaluated, formats: Sequence[str]
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
    run = prediction_files.trec_run_lines(
      evaluated.outcomes, tag=str(evaluated.measured["retriever"])
    )
    write("retrieved.trec", "\n".join(run) + "\n")
