"""Trainer, index builder and evaluator as jobs that XManager runs on this machine."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from realm_jax.index import generations

pytest.importorskip("xmanager.xm_local", reason="needs the extra `xmanager`")
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
ROOT = pathlib.Path(__file__).parents[2]


def launch(home, *arguments):
  environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
  return subprocess.run(
    [sys.executable, str(ROOT / "launch" / "xm_launch.py"), *arguments],
    env=environment,
    capture_output=True,
    text=True,
    timeout=300,
  )


def test_the_three_jobs_run_and_share_a_directory(world, tmp_path):
  done = launch(
    tmp_path,
    f"--workdir={tmp_path / 'run'}",
    f"--gin_file={world / 'tiny.gin'}",
    "--gin=RunConfig.checkpoint_every=2",
    f"--corpus={world / 'training'}",
    f"--passages={world / 'passages'}",
    f"--questions={world / 'almanac' / 'heldout.jsonl'}",
    "--num_steps=4",
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert "realm: pretrain, build_index, evaluate" in done.stdout
  index = str(tmp_path / "run" / "index")
  newest = generations.newest(index)
  assert generations.read_manifest(index, newest).training_step == 4
  lines = (tmp_path / "run" / "evaluation" / "evaluations.jsonl").read_text().splitlines()
  evaluated = [json.loads(line) for line in lines]
  assert evaluated[-1]["step"] == 4 and evaluated[-1]["generation"] == newest
  assert evaluated[-1]["questions"] > 0


def test_a_job_that_fails_ends_the_others(world, tmp_path):
  done = launch(
    tmp_path,
    f"--workdir={tmp_path / 'run'}",
    f"--gin_file={world / 'tiny.gin'}",
    f"--corpus={tmp_path / 'nothing'}",
    f"--passages={world / 'passages'}",
    "--num_steps=4",
  )
  assert done.returncode == 1
  assert "realm pretrain: " in done.stderr
  assert "xm_launch: a job failed" in done.stderr.splitlines()[-1]
  # The index builder would have waited for checkpoints for ever.
  left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
  assert left.stdout == ""
