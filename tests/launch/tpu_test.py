import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "launch" / "gcloud" / "tpu.py"
spec = importlib.util.spec_from_file_location("tpu", SCRIPT)
tpu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tpu)

# Records its arguments; answers as the file `answers` says for the words it is called with.
STAND_IN = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as file: file.write(json.dumps(sys.argv[1:]) + "\\n")
answers = json.loads((here / "answers").read_text())
for words, (code, out, error) in answers.items():
  if words in " ".join(sys.argv):
    print(out); print(error, file=sys.stderr); sys.exit(code)
"""


@pytest.fixture
def gcloud(tmp_path, monkeypatch):
  """`gcloud(answers)` sets what the stand-in answers; `gcloud.calls()` is what it was asked."""
  directory = tmp_path / "bin"
  directory.mkdir()
  program = directory / "gcloud"
  program.write_text(STAND_IN.format(python=sys.executable))
  program.chmod(0o755)
  monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")

  def answer(answers):
    (directory / "answers").write_text(json.dumps(answers))

  def calls():
    if not (directory / "calls").exists():
      return []
    return [json.loads(line) for line in (directory / "calls").read_text().splitlines()]

  answer.calls = calls
  answer({})
  return answer


def state(name):
  return {"describe": [0, json.dumps({"state": {"state": name}}), ""]}


ABSENT = {"describe": [1, "", "ERROR: (gcloud) NOT_FOUND: no such resource"]}


def test_a_slice_is_asked_for_once(gcloud, capsys):
  gcloud(ABSENT)
  create = ["create", "trainer", "--type=v4-128", "--zone=us-central2-b", "--project=p", "--spot"]
  assert tpu.main(create) == 0
  asked = gcloud.calls()[-1]
  assert asked[:5] == ["compute", "tpus", "queued-resources", "create", "trainer"]
  assert {"--accelerator-type=v4-128", "--node-id=trainer", "--spot"} < set(asked)
  assert asked[-2:] == ["--zone=us-central2-b", "--project=p"]
  gcloud(state("WAITING_FOR_RESOURCES"))
  assert tpu.main(create) == 0
  assert gcloud.calls()[-1][3] == "describe"
  assert "is there already: WAITING_FOR_RESOURCES" in capsys.readouterr().out


def test_waiting_ends_when_the_slice_is_there_or_will_never_be(gcloud, capsys):
  gcloud(state("ACTIVE"))
  assert tpu.main(["wait", "trainer"]) == 0
  gcloud(state("FAILED"))
  assert tpu.main(["wait", "trainer"]) == 1
  assert "trainer is FAILED; `delete` and `create` it" in capsys.readouterr().err


def test_the_package_is_what_is_committed(gcloud):
  assert tpu.main(["copy", "trainer", "--dry_run"]) == 0
  assert not gcloud.calls()


@pytest.mark.parametrize("command", tpu.COMMANDS)
def test_a_dry_run_runs_nothing(gcloud, capsys, command):
  extra = {"create": ["--type=v3-8"], "start": ["--", "pretrain", "--workdir=gs://b/run"]}
  assert tpu.main([command, "trainer", "--dry_run", *extra.get(command, [])]) == 0
  assert not gcloud.calls()
  assert "gcloud compute tpus" in capsys.readouterr().out


def test_a_slice_that_is_not_there_is_not_deleted(gcloud, capsys):
  gcloud(ABSENT)
  assert tpu.main(["delete", "trainer"]) == 0
  assert [call[3] for call in gcloud.calls()] == ["describe"]
  gcloud(state("ACTIVE"))
  assert tpu.main(["delete", "trainer"]) == 0
  assert gcloud.calls()[-1][3:] == ["delete", "trainer", "--force", "--quiet"]


@pytest.mark.parametrize(
  ("said", "meaning"),
  [
    ("ERROR: Quota limit 'TPUV4' has been exceeded.", "no quota left"),
    ("ERROR: RESOURCE_EXHAUSTED: try later", "no free slice"),
    ("ERROR: PERMISSION_DENIED: tpu.nodes.create", "this account may not"),
    ("ERROR: Invalid zone: [mars-1]", "no such zone"),
    ("ERROR: project [nobody] not found", "no such project"),
    ("ERROR: The specified bucket does not exist.", "no such bucket"),
    ("ERROR: You do not currently have an active account selected.", "not signed in"),
    ("ERROR: something new\nUsage: gcloud", "ERROR: something new"),
  ],
)
def test_a_complaint_is_one_line_that_says_what_to_do(gcloud, capsys, said, meaning):
  gcloud({"ssh": [1, "", said]})
  assert tpu.main(["stop", "trainer"]) == 1
  error = capsys.readouterr().err
  assert error.count("\n") == 1
  assert error.startswith("stop trainer: ") and meaning in error


def test_a_machine_without_gcloud(monkeypatch, capsys, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  assert tpu.main(["stop", "trainer"]) == 1
  assert "gcloud is not on the PATH" in capsys.readouterr().err


def test_a_job_starts_once_and_again_when_killed(gcloud, tmp_path):
  assert tpu.main(["start", "trainer", "--", "pretrain", "--workdir=gs://b/a run"]) == 0
  script = gcloud.calls()[-1][-1].removeprefix("--command=").replace("sleep 5", "sleep 0")
  home = tmp_path / "home"
  python = home / "realm_jax" / ".venv" / "bin" / "python"
  python.parent.mkdir(parents=True)
  # Dies of a signal twice, then ends well.
  python.write_text(
    '#!/bin/bash\nprintf "%s|" "$@" >> ran; echo >> ran; sleep 0.3\n'
    "[ $(wc -l < ran) -lt 3 ] && kill -KILL $$\nexit 0\n"
  )
  python.chmod(0o755)
  for _ in range(2):
    subprocess.run(["bash", "-c", script], cwd=home, check=True)
  ran = home / "realm_jax" / "ran"
  deadline = time.monotonic() + 20
  while time.monotonic() < deadline and (not ran.exists() or ran.read_text().count("\n") < 3):
    time.sleep(0.05)
  time.sleep(1)
  assert ran.read_text() == "-m|realm_jax.main|pretrain|--workdir=gs://b/a run|\n" * 3
