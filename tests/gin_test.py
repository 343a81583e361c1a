"""Every gin file parses, binds only names that exist, and an experiment is short."""

import pathlib
import re

import gin
import gin.config
import pytest

from realm_jax import main  # its finalize hook refuses macros that nothing uses

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "gin").rglob("*.gin"))
# Those of t5x name its modules; tests/t5x_adapter/gin_test.py has them.
FILES = [file for file in FILES if not file.startswith("gin/t5x/")]
EXPERIMENTS = [file for file in FILES if file.startswith("gin/experiments/")]
MAX_EXPERIMENT_LINES = 30


@pytest.fixture(autouse=True)
def clean_gin(monkeypatch):
  monkeypatch.chdir(ROOT)
  gin.clear_config()
  yield
  gin.clear_config()


def code_lines(text):
  return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("file", FILES)
def test_binds_only_names_that_exist(file):
  gin.parse_config_file(file)


@pytest.mark.parametrize("file", EXPERIMENTS)
def test_an_experiment_leaves_nothing_open(file):
  gin.parse_config_file(file)
  gin.finalize()


@pytest.mark.parametrize("file", EXPERIMENTS)
def test_an_experiment_is_short_and_says_how_to_run_it(file):
  text = (ROOT / file).read_text("utf-8")
  assert len(code_lines(text)) <= MAX_EXPERIMENT_LINES
  header = text.partition("\nfrom __gin__")[0]
  jobs = re.findall(r"^#   realm (\S+) .*" + re.escape(file), header, re.MULTILINE)
  assert jobs and all(job in main.JOBS or (ROOT / job).exists() for job in jobs), "no command"
