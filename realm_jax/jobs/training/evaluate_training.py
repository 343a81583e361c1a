"""Evaluates a run during training: each index generation, with the checkpoint it comes from."""

import json
import os
import time

from absl import logging

from realm_jax import atomic_files, object_store
from realm_jax.evaluation.asking import Asking
from realm_jax.index import generations
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.runs.supervisor import STOPPED
from realm_jax.saved.opening import Sources
from realm_jax.training import checkpoints as saved
from realm_jax.training import train_loop

EVALUATIONS = "evaluations.jsonl"


def evaluate_training(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  questions: str,
  output: str,
  until_step: int,
  max_questions: int | None = None,
  batch_size: int = 32,
  poll_seconds: float = 5.0,
) -> None:
  """Evaluates every new generation on questions, and appends the metrics to a file.

  Skips generations that appear faster than they can be evaluated, and those whose checkpoint is
  already deleted. After a restart it continues after the last line.

  Args:
    checkpoints: Directory of the run's checkpoints.
    passages: Directory of the knowledge corpus.
    index: Directory of the index generations.
    questions: JSON Lines, as for `realm evaluate`.
    output: Directory for `evaluations.jsonl`, whose lines have step, generation and metrics.
    until_step: Stops after evaluating this step or a later one.
    max_questions: Samples at most this many, always the same ones; None uses all.
    batch_size: Questions per batch.
    poll_seconds: Time between checks for a newer generation.

  Raises:
    FileNotFoundError: If corpus or questions are missing.
    ValueError: If checkpoint, corpus, index and questions do not match.
  """
  path = os.path.join(output, EVALUATIONS)
  written = object_store.absolute(path)
  lines = written.read_text().splitlines() if written.exists() else []
  last = json.loads(lines[-1]) if lines else {"step": -1, "generation": -1}
  seen = last["generation"]
  with train_loop.StopSignal() as stopped:
    while not stopped() and last["step"] < until_step:
      generation = generations.newest(index)
      if generation is None or generation <= seen:
        time.sleep(poll_seconds)
        continue
      seen = generation
      try:
        step = generations.read_manifest(index, generation).training_step
        figures = evaluate(
          questions=questions,
          sources=Sources(
            checkpoints=checkpoints,
            passages=passages,
            index=index,
            step=step,
            generation=generation,
          ),
          asking=Asking(batch_size=batch_size),
          max_questions=max_questions,
        )
      except FileNotFoundError as error:
        still_there = generation in generations.all_generations(index)
        if still_there and step in saved.steps(checkpoints):
          raise
        logging.warning("skipping generation %d: %s", generation, error)
        continue
      last = {"step": step, "generation": generation, **figures}
      lines.append(json.dumps(last))
      atomic_files.write_text(path, "\n".join(lines) + "\n")
  if last["step"] < until_step:
    raise SystemExit(STOPPED)
