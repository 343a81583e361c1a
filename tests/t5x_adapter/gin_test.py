"""Every file of gin/t5x parses as t5x parses it, and one of them trains."""

import pathlib
import re
import sys
import time

import gin
import gin.config
import pytest

pytest.importorskip("t5x", reason="needs the extra t5x; see docs/t5x.md")

from t5x import train

import realm_jax.main  # noqa: F401  its finalize hook refuses macros that nothing uses
from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.jobs.training.build_index import build_index

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "gin" / "t5x").glob("*.gin"))
RUNS = [file for file in FILES if "realm_" in file]


@pytest.fixture(autouse=True)
def clean_gin(monkeypatch):
  monkeypatch.chdir(ROOT)
  monkeypatch.setitem(sys.modules, "__main__", train)
  gin.clear_config()
  yield
  gin.clear_config()


@pytest.mark.parametrize("file", FILES)
def test_binds_only_names_that_exist(file):
  gin.parse_config_file(file)


@pytest.mark.parametrize("file", RUNS)
def test_a_training_uses_all_its_macros_and_says_how_to_run_it(file):
  header = (ROOT / file).read_text("utf-8").partition("\nfrom __gin__")[0]
  assert f"python -m t5x.train --gin_file={file}" in header
  gin.parse_config_file(file)
  for name in re.findall(r"--gin\.([A-Z_]+)=", header):
    gin.parse_config(f"{name} = 'somewhere'")
  gin.finalize()


@pytest.mark.parametrize("file", RUNS)
def test_a_pretraining_begins_with_a_reader_that_can_read(file):
  gin.parse_config_file(file)
  assert "PretrainingModel.start" in gin.config_str()


@pytest.mark.timeout(600)
def test_a_training_from_the_command_line(world, alongside):
  model_dir, passages = world / "command_line", world / "passages"
  bindings = {
    "MODEL_DIR": str(model_dir),
    "PASSAGES": str(passages),
    "VOCABULARY": str(passages / "vocabulary"),
    "CORPUS": str(world / "training"),
    "EVAL_CORPUS": str(passages),
    "INDEX": str(world / "command_line_index"),
    "TRAIN_STEPS": 4,
    "BATCH_SIZE": 8,
    "CHECKPOINT_PERIOD": 2,
    "EVAL_STEPS": 1,
    "partitioning.PjitPartitioner.model_parallel_submesh": (1, 2, 1, 1),
    "STATS_PERIOD": 2,
    "models.PretrainingModel.start": (),
    "optimizer.OptimizerConfig.warmup_steps": 0,
  }
  command = [
    *(sys.executable, "-m", "t5x.train", "--gin_file=gin/t5x/realm_pretrain.gin"),
    *(f"--gin.{name}={value!r}" for name, value in bindings.items()),
  ]
  with alongside(command) as training:
    published = str(model_dir / "checkpoints")
    while not orbax_files.steps(published):
      assert training.poll() is None
      time.sleep(0.1)
    build_index(
      checkpoints=published, passages=str(passages), index=str(world / "command_line_index"), step=0
    )
  assert saved_models.load(published).step == 4
  assert (model_dir / "checkpoint_4").is_dir() and (model_dir / "config.gin").exists()
