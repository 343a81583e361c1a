"""Evaluates a checkpoint, BM25 or a file of predictions on questions with known answers."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence

from absl import logging

from realm_jax import atomic_files, object_store
from realm_jax.data.questions import read_questions, sampled
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.collection_evaluation import evaluate_collection
from realm_jax.evaluation.masked_span_evaluation import evaluate_masked_spans
from realm_jax.evaluation.open_qa_evaluation import Format, evaluate_open_qa
from realm_jax.index import generations
from realm_jax.index.fusion import Fusion
from realm_jax.runs.supervisor import STOPPED
from realm_jax.saved.opening import Sources
from realm_jax.training.checkpoints import steps
from realm_jax.training.train_loop import StopSignal

EVALUATIONS = "evaluations.jsonl"

_SOURCES = {field.name for of in (Sources, Fusion) for field in dataclasses.fields(of)} - {"fusion"}
# What would do nothing, by what is evaluated.
_UNUSED = {
  "--qrels": ("train_questions", "formats", "max_questions", "answer_text", "book"),
  "--qrels and --predictions": ("tune_on", "batch_size", *_SOURCES),
  "questions": ("book",),
  "questions and --predictions": (
    *("train_questions", "tune_on", "formats", "answer_text", "recall_at", "batch_size"),
    *_SOURCES,
  ),
  "masked sentences": (
    "predictions",
    "against",
    "train_questions",
    "tune_on",
    "formats",
    "answer_text",
  ),
  "--follow": ("predictions", "formats", "step", "generation"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Following:
  """Whether to evaluate one checkpoint or a running training.

  Attributes:
    follow: Whether to evaluate each new generation, with the checkpoint that it was made from.
    until_step: With `follow`, stops after evaluating this step or a later one; None continues until
      told to stop.
    poll_seconds: Time between checks for a newer generation.
  """

  follow: bool = False
  until_step: int | None = None
  poll_seconds: float = 5.0

  def __post_init__(self):
    if self.until_step is not None and not self.follow:
      raise ValueError(f"until_step={self.until_step} would do nothing without --follow=true")


def evaluate(
  *,
  questions: str,
  qrels: str | None = None,
  sources: Sources = Sources(),
  asking: Asking = Asking(),
  following: Following = Following(),
  predictions: str | None = None,
  against: str | None = None,
  train_questions: str | None = None,
  tune_on: str | None = None,
  output: str | None = None,
  formats: Sequence[Format] = (),
  max_questions: int | None = None,
) -> dict:
  """Answers questions or fills masks, and scores the answers against the references.

  A checkpoint of `realm finetune` answers questions, and one of `realm pretrain` fills masks; all
  others and BM25 only retrieve. The printed card, also written to `output`, records what was
  measured.

  Args:
    questions: JSON Lines of questions (`question`, `answer`), or of masked sentences (`text`,
      `spans`, `answer`) as `realm mask_sentences` writes; with `qrels`, of queries (`_id`, `text`).
    qrels: Judgements of a retrieval test collection, in BEIR's or TREC's format: documents are
      ranked, each by its best passage, and scored by nDCG, recall and reciprocal rank.
    sources: The model, the corpus and its index; BM25 needs only the corpus.
    asking: How questions are asked.
    following: Whether to follow a training. Then `output` gets `evaluations.jsonl`, a line with
      step, generation and metrics for each generation. Generations that appear faster than they can
      be evaluated are skipped, and so are those whose checkpoint is already deleted. A restart
      continues after the last line.
    predictions: A file of predictions to score instead of a model's.
    against: A file of predictions for the same questions, to compare with question by question.
    train_questions: The training questions, to tell answers seen in training from others.
    tune_on: Development questions, or with `qrels` development judgements, to tune the weight of a
      hybrid retriever on.
    output: Directory for `figures.json`, `card.md` and `predictions.jsonl`; None only prints.
    formats: Also writes the retrieved passages, as "dpr" (Dense Passage Retrieval's JSON, with all
      texts) or "trec" (a run file).
    max_questions: Samples at most this many, always the same ones; None uses all.

  Returns:
    The metrics, overall and by group; of the last generation if a training is followed.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If checkpoint, corpus, index and questions do not match, or a setting would do
      nothing.
  """
  given = {
    "predictions": predictions,
    "against": against,
    "train_questions": train_questions,
    "tune_on": tune_on,
    "formats": formats,
    "max_questions": max_questions,
  }
  changed = [name for name, value in given.items() if value]
  for settings in (asking, sources, sources.fusion):
    default = type(settings)()
    changed += [n for n, value in vars(settings).items() if value != getattr(default, n)]
  if following.follow:
    _check_used(changed, "--follow")
    settings = {**given, "questions": questions, "qrels": qrels, "asking": asking}
    return _follow(
      lambda of: evaluate(**settings, sources=of), sources, following=following, output=output
    )
  if qrels is not None:
    _check_used(changed, "--qrels")
    return evaluate_collection(
      queries=questions,
      judgements=qrels,
      sources=sources,
      asking=asking,
      predictions=predictions,
      against=against,
      tune_on=tune_on,
      output=output,
    )
  asked = sampled(read_questions(questions), max_questions)
  if asked[0].span is not None:
    _check_used(changed, "masked sentences")
    return evaluate_masked_spans(asked, sources=sources, asking=asking, output=output)
  _check_used(changed, "questions")
  return evaluate_open_qa(
    asked,
    questions_file=questions,
    sources=sources,
    asking=asking,
    predictions=predictions,
    against=against,
    train_questions=train_questions,
    tune_on=tune_on,
    output=output,
    formats=formats,
  )


def _check_used(changed: Sequence[str], what: str) -> None:
  unused, scored = _UNUSED[what], f"{what} and --predictions"
  if "predictions" in changed and scored in _UNUSED:
    unused, what = (*unused, *_UNUSED[scored]), scored
  if names := [f"--{name}" for name in changed if name in unused]:
    instead = "; `realm compare_runs` compares outputs" if "--against" in names else ""
    raise ValueError(f"with {what}, {', '.join(names)} would do nothing; omit it{instead}")


def _follow(
  evaluated: Callable[[Sources], dict],
  sources: Sources,
  *,
  following: Following,
  output: str | None,
) -> dict:
  """Evaluates each new generation and appends the metrics to a file."""
  checkpoints, index = sources.checkpoints, sources.index
  if checkpoints is None or index is None or output is None:
    raise ValueError("--follow needs --checkpoints and --index of a training, and --output")
  path = os.path.join(output, EVALUATIONS)
  written = object_store.absolute(path)
  lines = written.read_text().splitlines() if written.exists() else []
  last = json.loads(lines[-1]) if lines else {"step": -1, "generation": -1}
  until_step, seen = following.until_step, last["generation"]
  with StopSignal() as stopped:
    while not stopped() and (until_step is None or last["step"] < until_step):
      generation = generations.newest(index)
      if generation is None or generation <= seen:
        time.sleep(following.poll_seconds)
        continue
      seen = generation
      try:
        step = generations.read_manifest(index, generation).training_step
        figures = evaluated(dataclasses.replace(sources, step=step, generation=generation))
      except FileNotFoundError as error:
        still_there = generation in generations.all_generations(index)
        if still_there and step in steps(checkpoints):
          raise
        logging.warning("skipping generation %d: %s", generation, error)
        continue
      last = {"step": step, "generation": generation, **figures}
      lines.append(json.dumps(last))
      atomic_files.write_text(path, "\n".join(lines) + "\n")
  if until_step is None or last["step"] < until_step:
    raise SystemExit(STOPPED)
  return last
