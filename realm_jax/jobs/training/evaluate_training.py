"""Evaluates a training while it runs: each index generation with the checkpoint it is made of."""

import json
import os
import time

from absl import logging

from realm_jax import atomic_files, object_store
from realm_jax.index import generations
from realm_jax.jobs.answering.evaluate import evaluate
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
  """Asks questions of the newest generation, again and again, and adds the figures to a file.

  Generations that come faster than they are evaluated are passed over, as are those whose
  checkpoint is deleted already. Started again, it goes on behind the last line.

  Args:
    checkpoints: directory of the training's checkpoints.
    passages: directory of the knowledge corpus.
    index: directory of the index generations.
    questions: JSON Lines, as for `realm evaluate`.
    output: directory; `evaluations.jsonl` gets a line of step, generation and figures each time.
    until_step: ends after the evaluation of this step or a later one.
    max_questions: of more questions, so many are drawn, always the same ones; none: all are asked.
    batch_size: questions asked at once.
    poll_seconds: time between two looks for a newer generation.

  Raises:
    FileNotFoundError: if corpus or questions are missing.
    ValueError: if checkpoint, corpus, index and questions do not fit each other.
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
          checkpoints=checkpoints,
          passages=passages,
          index=index,
          step=step,
          generation=generation,
          batch_size=batch_size,
          max_questions=max_questions,
        )
      except FileNotFoundError as error:
        still_there = generation in generations.all_generations(index)
        if still_there and step in saved.steps(checkpoints):
          raise
        logging.warning("generation %d is passed over: %s", generation, error)
        continue
      last = {"step": step, "generation": generation, **figures}
      lines.append(json.dumps(last))
      atomic_files.write_text(path, "\n".join(lines) + "\n")
