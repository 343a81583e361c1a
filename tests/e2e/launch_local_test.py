"""Trainer, index builder and evaluator as the processes of one command."""

import json

import pytest

from realm_jax import main
from realm_jax.index import generations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_one_command_trains_beside_an_index_builder_and_evaluates(world, capfd):
  workdir = world / "launched"
  command = [
    "launch_local",
    f"--gin_file={world / 'tiny.gin'}",
    f"--workdir={workdir}",
    f"--corpus={world / 'examples'}",
    f"--passages={world / 'passages'}",
    f"--start={world / 'first' / 'checkpoints'}:dual_encoder",
    f"--questions={world / 'almanac' / 'heldout.jsonl'}",
    "--num_steps=4",
    "--checkpoint_every=2",
  ]
  assert main.main(command) == 0
  built = generations.all_generations(str(workdir / "index"))
  steps = [generations.read_manifest(str(workdir / "index"), g).training_step for g in built]
  # The flags reach the processes: steps 1 and 3 have no checkpoint.
  assert steps[0] == 0 and steps[-1] == 4 and set(steps) <= {0, 2, 4}
  figures = json.loads((workdir / "evaluation" / "figures.json").read_text())
  assert figures["figures"]["questions"] > 0
  assert "step 4/4" in capfd.readouterr().err
