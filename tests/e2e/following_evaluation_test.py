"""An evaluator that follows the index generations of a training."""

import json
import shutil
import threading

from realm_jax import main
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig


def test_it_evaluates_what_is_new_and_passes_over_what_is_gone(world, start, build, tmp_path):
  start("followed", num_steps=3, checkpoint_every=1)
  checkpoints, index = world / "followed" / "checkpoints", tmp_path / "index"
  inputs = {"checkpoints": str(checkpoints), "passages": str(world / "passages")}

  def build_of(step):
    exact = BuilderConfig(searcher=SearcherConfig(kind="exact"))
    build("followed", index, step=step, builder=exact)

  def evaluated(until_step):
    command = [
      "evaluate",
      "--follow=true",
      *(f"--{name}={value}" for name, value in inputs.items()),
      f"--index={index}",
      f"--questions={world / 'almanac' / 'heldout.jsonl'}",
      f"--output={tmp_path / 'evaluation'}",
      f"--until_step={until_step}",
      "--max_questions=8",
      "--poll_seconds=0.1",
    ]
    assert main.main(command) == 0
    lines = (tmp_path / "evaluation" / "evaluations.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert all(row["questions"] == 8 for row in rows)
    return [(row["step"], row["generation"]) for row in rows]

  build_of(1)
  assert evaluated(1) == [(1, 0)]
  assert evaluated(1) == [(1, 0)]  # started again, with nothing left to do
  build_of(2)
  shutil.rmtree(checkpoints / "2")  # as a trainer does that is far ahead
  later = threading.Timer(1.0, build_of, (3,))
  later.start()
  assert evaluated(3) == [(1, 0), (3, 2)]
  later.join()
