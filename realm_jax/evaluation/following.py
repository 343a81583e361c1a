"""Evaluates the generations of a running training, one after another."""

import dataclasses
import json
import os
import time
from collections.abc import Callable

from absl import logging

from realm_jax.checkpoints.opening import Sources
from realm_jax.checkpoints.orbax_files import DamagedCheckpointError, run_of, steps
from realm_jax.foundations import atomic_files, choices, text_files
from realm_jax.index import generations
from realm_jax.launching.stop_signal import STOPPED, StopSignal

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
    self, evaluated: Callable[[Sources], dict], sources: Sources, *, output: str
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
    until_step, seen = self.until_step, last["generation"]
    with StopSignal() as stopped:
      while not stopped() and (until_step is None or last["step"] < until_step):
        generation = generations.newest(index)
        if generation is None or generation <= seen:
          time.sleep(self.poll_seconds)
          continue
        seen = generation
        try:
          step = generations.read_manifest(index, generation).training_step
          metrics = evaluated(dataclasses.replace(sources, step=step, generation=generation))
        except (DamagedCheckpointError, generations.DamagedGenerationError) as error:
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
