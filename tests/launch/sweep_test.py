import json
import os
import signal
import subprocess
import sys
import time

import pytest

from launch import sweep

FILE = """
job = "pretrain"
gin_file = "some.gin"
summary = "summary.json"

[figures]
"exact match" = "heldout.exact_match"

[grid]
"training_config.RunConfig.seed" = [0, 1, 2]

[list.realm]

[list.random_span]
"masking.MaskingConfig.unit" = "random_span"
"pretrain.pretrain.start" = "runs/bert"
"""
# Writes a figure that follows from the bindings, and counts its starts; one of them fails at first.
PROGRAM = """
import json, os, pathlib, sys
flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:])
workdir = pathlib.Path(flags["workdir"])
workdir.mkdir(exist_ok=True)
with open(workdir / "starts", "a") as file: file.write("x")
seed = int(flags["gin.training_config.RunConfig.seed"])
span = flags.get("gin.masking.MaskingConfig.unit") == "'random_span'"
if span and seed == 2 and (workdir / "starts").read_text() == "x": sys.exit("no memory left")
figure = 0.5 + 0.1 * seed - 0.3 * span
(workdir / "summary.json").write_text(json.dumps({"heldout": {"exact_match": figure}}))
"""


@pytest.fixture
def file(tmp_path):
  path = tmp_path / "some.sweep"
  path.write_text(FILE)
  return str(path)


@pytest.fixture
def program(monkeypatch):
  """Runs `program(text)` instead of a job."""

  def use(text):
    def command(job, *, gin_file, keywords):
      assert (job, gin_file) == ("pretrain", "some.gin")
      return [sys.executable, "-c", text, *(f"--{k}={v}" for k, v in keywords.items())]

    monkeypatch.setattr(sweep, "realm_command", command)

  return use


def test_every_row_is_run_at_every_point_under_a_readable_name(file):
  units = sweep.read_sweep(file).units
  assert [unit.name for unit in units] == [
    f"{row},seed={seed}" for row in ("realm", "random_span") for seed in (0, 1, 2)
  ]
  assert units[-1].bindings == {
    "masking.MaskingConfig.unit": "'random_span'",
    "pretrain.pretrain.start": "'runs/bert'",
    "training_config.RunConfig.seed": "2",
  }


def test_a_sweep_goes_on_where_it_was_and_ends_in_a_table(file, tmp_path, program, capsys):
  program(PROGRAM)
  workdir = tmp_path / "out"
  with pytest.raises(ChildProcessError, match="1 runs failed: random_span,seed=2"):
    sweep.sweep(file=file, workdir=str(workdir), parallel=2)
  assert "no memory left" in (workdir / "random_span,seed=2.log").read_text()
  assert json.loads((workdir / "table.json").read_text())["random_span"]["runs"] == 2
  sweep.sweep(file=file, workdir=str(workdir))
  assert "6 runs, 5 finished before" in capsys.readouterr().out
  starts = {path.parent.name: path.read_text() for path in workdir.glob("*/starts")}
  assert starts.pop("random_span,seed=2") == "xx"
  assert set(starts.values()) == {"x"}
  # Mean and Student's t of 0.5, 0.6, 0.7: 4.3027 * 0.1 / sqrt(3).
  row = json.loads((workdir / "table.json").read_text())["realm"]["exact match"]
  assert row == {"mean": pytest.approx(0.6), "half_width": pytest.approx(0.24841, abs=1e-5)}
  assert (workdir / "table.md").read_text() == (
    "|  | runs | exact match |\n|---|--:|--:|\n"
    "| realm | 3 | 0.600 ± 0.248 |\n| random span | 3 | 0.300 ± 0.248 |\n"
  )


def test_a_run_with_other_settings_is_refused_and_stays(file, tmp_path, program, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "some.gin").write_text('include "inner.gin"\n')
  inner = tmp_path / "inner.gin"
  inner.write_text("A.width = 4\n")
  program("import pathlib, sys\n" + PROGRAM.replace("if span and", "if False and"))
  sweep.sweep(file=file, workdir="out")
  table = (tmp_path / "out" / "table.md").read_text()
  inner.write_text("A.width = 64\n")
  with pytest.raises(ValueError, match=r"out/realm,seed=0 has a run with other settings \(inner.g"):
    sweep.sweep(file=file, workdir="out")
  inner.write_text("A.width = 4\n")
  changed = tmp_path / "changed.sweep"
  changed.write_text(FILE.replace('"random_span"', '"word"'))
  with pytest.raises(
    ValueError, match=r"random_span,seed=0 .*\(masking.MaskingConfig.unit\).*dele"
  ):
    sweep.sweep(file=str(changed), workdir="out")
  changed.write_text(FILE.replace("[0, 1, 2]", "[2, 1, 0, 3]"))
  sweep.sweep(file=str(changed), workdir="out")  # a point more
  assert (tmp_path / "out" / "table.md").read_text() != table
  starts = {path.parent.name: path.read_text() for path in tmp_path.glob("out/*/starts")}
  assert len(starts) == 8 and set(starts.values()) == {"x"}


@pytest.mark.parametrize(
  ("before", "after", "message"),
  [
    ("[0, 1, 2]", "[0, 1, 0]", "RunConfig.seed has 0 twice"),
    ("[0, 1, 2]", "[1.0, 1e0]", "RunConfig.seed has 1.0 twice"),
    ("[0, 1, 2]", "[1, 1.0]", "RunConfig.seed has 1.0 twice"),
    ("[0, 1, 2]", '[1, "1"]', "realm,seed=1 cannot be the directory of row realm"),
    ("[list.realm]", '[list."a/b"]\n[list.a_b]', "a_b,seed=0 cannot be the directory of row a_b"),
  ],
)
def test_runs_that_would_share_a_directory_are_refused(file, tmp_path, before, after, message):
  (tmp_path / "some.sweep").write_text(FILE.replace(before, after))
  with pytest.raises(ValueError, match=message):
    sweep.read_sweep(file)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_runs(file, tmp_path, sent):
  ready = tmp_path / "ready"
  child = f"import os, time; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
  parent = f"""
import signal, sys
# A shell starts what runs in the background with SIGINT ignored, and nohup with SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from launch import sweep
sweep.realm_command = lambda *a, **k: [sys.executable, "-c", {child!r}]
sweep.sweep(file={file!r}, workdir={str(tmp_path / "out")!r})
"""
  process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
  while not ready.exists() or not ready.read_text():
    assert process.poll() is None
    time.sleep(0.05)
  process.send_signal(sent)
  process.communicate(timeout=30)
  with pytest.raises(ProcessLookupError):
    os.kill(int(ready.read_text()), 0)
