"""Evaluates a checkpoint, BM25 or a file of predictions on questions with known answers."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence

from absl import logging

from realm_jax.checkpoints.opening import Sources
from realm_jax.checkpoints.orbax_files import DamagedCheckpointError, run_of, steps
from realm_jax.data.questions import read_judgements, read_queries, read_questions, sampled
from realm_jax.evaluation import result_card, run_comparison
from realm_jax.evaluation.document_ranking import JudgedQueries
from realm_jax.evaluation.masked_sentences import MaskedSentences
from realm_jax.evaluation.open_qa import Format, OpenQuestions
from realm_jax.evaluation.systems import Asking, Evaluator, open_system, question_sets
from realm_jax.foundations import atomic_files, choices, text_files
from realm_jax.index import generations
from realm_jax.launching.supervisor import STOPPED
from realm_jax.training.train_loop import StopSignal

EVALUATIONS = "evaluations.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Following(choices.Checked):
  """Whether to evaluate one checkpoint or a running training.

  Attributes:
    follow: Whether to evaluate each new generation, with the checkpoint that it was made from.
    until_step: With `follow`, stops after evaluating this step or a later one; None continues until
      told to stop.
    poll_seconds: Time between checks for a newer generation.
  """

  follow: bool = False
  until_step: choices.CountOrZero | None = None
  poll_seconds: choices.PositiveOrZero = 5.0


def evaluate(
  *,
  questions: str,
  qrels: str | None = None,
  sources: Sources = Sources(),
  asking: Asking = Asking(),
  following: Following = Following(),
  predictions: str | None = None,
  train_questions: str | None = None,
  output: str | None = None,
  formats: Sequence[Format] = (),
  max_questions: choices.Count | None = None,
  against: str | None = None,
) -> dict:
  """Answers questions or fills masks, and scores the answers against the references.

  A checkpoint of `realm finetune` answers questions, and one of `realm pretrain` fills masks; all
  others and BM25 only retrieve. The printed card, also written to `output`, records what was
  measured.

  Args:
    questions: JSON Lines of questions (`question`, `answer`), or of masked sentences (`text`,
      `spans`, `answer`) as `realm mask_sentences` writes; with `qrels`, of queries (`_id`, `text`).
      Several sets, `nq=FILE,wq=FILE`, are put to one system and written to `output/nq` and so on.
    qrels: Judgements of a retrieval test collection, in BEIR's or TREC's format: documents are
      ranked, each by its best passage, and scored by nDCG, recall and reciprocal rank.
    sources: The model, the corpus and its index; BM25 needs only the corpus.
    asking: How questions are asked.
    following: Whether to follow a training. Then `output` gets `evaluations.jsonl`, a line with
      step, generation and metrics for each generation. Generations that appear faster than they can
      be evaluated are skipped, and so are those whose checkpoint is already deleted. A restart
      continues after the last line.
    predictions: A file of predictions to score instead of a model's.
    train_questions: The training questions, to tell answers seen in training from others.
    output: Directory for `figures.json`, `card.md` and `predictions.jsonl`; None only prints.
    formats: Also writes the retrieved passages, as "dpr" (Dense Passage Retrieval's JSON, with all
      texts) or "trec" (a run file).
    max_questions: Samples at most this many, always the same ones; None uses all.
    against: The output directory of another system's evaluation on the same questions, to compare
      with question by question: differences, their 95 % intervals and p (docs/evaluation.md).

  Returns:
    The metrics, overall and by group, or those of each set by name; of the last generation if a
    training is followed.
  """
  if output is not None:
    result_card.EVALUATION.check(output)
  if output is None and (formats or against):
    raise ValueError("--formats and --against need a directory; give --output")
  if predictions and sources != Sources():
    raise ValueError(
      "--predictions are scored without a system; omit --checkpoints, --passages, --index, "
      "--retriever and their settings"
    )
  if following.follow and not (sources.checkpoints and sources.index and output):
    raise ValueError("--follow needs --checkpoints and --index of a training, and --output")
  fixed = {"predictions": predictions, "against": against, "formats": formats or None}
  fixed |= {"step": sources.step, "generation": sources.generation}
  if following.follow and (given := [f"--{k}" for k, v in fixed.items() if v is not None]):
    raise ValueError(f"--follow evaluates each new generation; omit {', '.join(given)}")
  if following.until_step is not None and not following.follow:
    raise ValueError(f"until_step={following.until_step} needs --follow=true")
  if against is not None:
    run_comparison.sets_of(against)  # not after hours of evaluation

  def answers_of(file: str) -> list[str]:
    return [answer for question in read_questions(file) for answer in question.answers]

  def questions_in(file: str) -> Evaluator:
    asked = [] if qrels is not None else sampled(read_questions(file), max_questions)
    is_masked = bool(asked) and asked[0].span is not None
    if asking.book == "closed" and not is_masked:
      raise ValueError(f"book=closed is for masked sentences, but {file} has none; omit it")
    if qrels is not None:
      grades = read_judgements(qrels)
      queries = sampled(read_queries(file, grades), max_questions)
      inputs = {"queries": file, "judgements": qrels}
      grades = {query.id: grades[query.id] for query in queries}
      return JudgedQueries(inputs=inputs, questions=queries, grades=grades, asking=asking)
    if is_masked:
      return MaskedSentences(inputs={"masked sentences": file}, questions=asked, asking=asking)
    return OpenQuestions(
      inputs={"questions": file},
      questions=asked,
      asking=asking,
      train_answers=None if train_questions is None else answers_of(train_questions),
      formats=formats,
    )

  evaluators = {name: questions_in(file) for name, file in question_sets(questions).items()}

  def evaluated(of: Sources, output: str | None) -> dict:
    """Opens the system once for all sets; returns the metrics, by set if there are several."""
    system = None if predictions else open_system(of, asking)
    found = {}
    for name, evaluator in evaluators.items():
      result = evaluator.evaluate(system) if system else evaluator.read(str(predictions))
      directory = output and os.path.join(output, name)
      found[name] = result_card.publish(result, inputs=evaluator.inputs, output=directory)
    return found.get("", found)

  if output is None or not following.follow:
    found = evaluated(sources, output)
    if output is not None and against is not None:
      print(run_comparison.compare(output, against), flush=True)
    return found
  return _follow(lambda of: evaluated(of, None), sources, following=following, output=output)


def _follow(
  evaluated: Callable[[Sources], dict],
  sources: Sources,
  *,
  following: Following,
  output: str,
) -> dict:
  """Evaluates each new generation and appends the metrics to a file."""
  checkpoints, index = sources.checkpoints, sources.index
  path = os.path.join(output, EVALUATIONS)
  rows = text_files.read_log(path)
  last = rows[-1] if rows else {"step": -1, "generation": -1}
  if rows and (not steps(checkpoints) or last["run"] != run_of(checkpoints).name):
    raise ValueError(
      f"{path} is of another run than {checkpoints}; give another --output, or move it away"
    )
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
        metrics = evaluated(dataclasses.replace(sources, step=step, generation=generation))
      except DamagedCheckpointError as error:
        logging.warning("skipping generation %d: %s", generation, error)
        continue
      except FileNotFoundError as error:
        still_there = generation in generations.all_generations(index)
        if still_there and step in steps(checkpoints):
          raise
        logging.warning("skipping generation %d: %s", generation, error)
        continue
      run = run_of(checkpoints).name
      last = {"step": step, "generation": generation, "run": run, **metrics}
      rows.append(last)
      atomic_files.write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
  if until_step is None or last["step"] < until_step:
    raise SystemExit(STOPPED)
  return last
