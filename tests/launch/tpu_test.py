import importlib.util
import json
import os
import pathlib
import shutil
import signal
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
if sys.stderr.isatty(): print("Do you want to continue (Y/n)?", end=" ", file=sys.stderr)
answers = json.loads((here / "answers").read_text())
for words, (code, out, error) in answers.items():
  if words in " ".join(sys.argv):
    print(out); print(error, file=sys.stderr); sys.exit(code)
"""


@pytest.fixture
def gcloud(tmp_path, monkeypatch):
  """`gcloud(answers)` sets the fake's answers; `gcloud.calls()` returns the calls it got."""
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


def test_a_slice_is_not_held_before_there_is_an_index(gcloud, monkeypatch, capsys):
  nothing = "ERROR: (gcloud.storage.ls) One or more URLs matched no objects."
  gcloud({**ABSENT, "storage ls": [1, "", nothing]})
  waited = []

  def publish(seconds):
    waited.append(seconds)
    assert not any("create" in call for call in gcloud.calls())
    gcloud({**ABSENT, "storage ls": [0, "gs://b/index/0/commit_success.txt", ""]})

  monkeypatch.setattr(tpu.time, "sleep", publish)
  assert tpu.main(["create", "trainer", "--type=v4-128", "--after=gs://b/index/"]) == 0
  assert len(waited) == 1 and gcloud.calls()[-1][3] == "create"
  assert ["storage", "ls", "gs://b/index/*/commit_success.txt"] in gcloud.calls()
  assert "gs://b/index/ has no generation yet" in capsys.readouterr().out
  gcloud({**ABSENT, "storage ls": [1, "", "ERROR: PERMISSION_DENIED: storage.objects.list"]})
  assert tpu.main(["create", "trainer", "--type=v4-128", "--after=gs://b/index"]) == 1
  assert "permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("command", tpu.COMMANDS)
def test_a_dry_run_runs_nothing(gcloud, capsys, command):
  job = ["--", "pretrain", "--workdir=gs://b/run"]
  extra = {"create": ["--type=v3-8"], "start": job, "keep": ["--type=v3-8", *job]}
  assert tpu.main([command, "trainer", "--dry_run", *extra.get(command, [])]) == 0
  assert not gcloud.calls()
  assert "gcloud compute tpus" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("said", "meaning"),
  [
    ("ERROR: Quota limit 'TPUV4' has been exceeded.", "no quota left"),
    (
      "ERROR: (gcloud) PERMISSION_DENIED: Cloud TPU API has not been used in project p before or "
      "it is disabled.",
      "run `gcloud services enable tpu.googleapis.com`",
    ),
    ("ERROR: RESOURCE_EXHAUSTED: try later", "no free slice"),
    ("ERROR: Permission denied on 'locations/mars-1' (or it may not exist).", "no such zone"),
    ("ERROR: The specified bucket does not exist.", "no such bucket"),
    ("ERROR: something new\nUsage: gcloud", "ERROR: something new"),
  ],
)
def test_a_complaint_is_one_line_that_says_what_to_do(gcloud, capsys, said, meaning):
  gcloud({"ssh": [1, "", said]})
  assert tpu.main(["stop", "trainer"]) == 1
  *shown, error = capsys.readouterr().err.splitlines()
  assert "\n".join(shown) == said  # gcloud's own words come first
  assert error.startswith("stop trainer: ") and meaning in error


# A slice that is taken away when the job is asked about the first time, but seems active for some
# time; on the next one the job finishes.
SPOT = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
command = " ".join(sys.argv[4:6])
state = here / "state"
with open(here / "said", "a") as file: file.write(command + "\\n")
if command.startswith("create"): state.write_text("ACTIVE")
if command.startswith("delete"): state.unlink()
if command.startswith("describe"):
  if not state.exists(): sys.exit("ERROR: NOT_FOUND")
  print(json.dumps(dict(state=dict(state=state.read_text()))))
if "realm_jax/finished" in " ".join(sys.argv):
  asked = here / "asked"
  times = len(asked.read_text()) if asked.exists() else 0
  asked.write_text("x" * (times + 1))
  if times == 3: state.write_text("SUSPENDED")
  if times < 4: sys.exit("ERROR: no route to host")
  print("host-0 finished")
"""


def test_a_job_goes_on_on_another_slice_until_it_is_finished(gcloud, tmp_path, monkeypatch, capsys):
  program = tmp_path / "bin" / "gcloud"
  program.write_text(SPOT.format(python=sys.executable))
  monkeypatch.setattr(tpu, "_POLL_SECONDS", 0.01)
  assert tpu.main(["keep", "trainer", "--type=v6e-64", "--spot", "--", "pretrain"]) == 0
  said = (tmp_path / "bin" / "said").read_text().split("\n")
  life = [line.split()[0] for line in said if line and not line.startswith("describe")]
  installed = ["create", "ssh", "scp", "ssh", "ssh"]
  assert life == [*installed, *["ssh"] * 3, "delete", *installed, "ssh"]
  out = capsys.readouterr().out
  assert "trainer was taken away" in out and "the job is finished" in out


@pytest.mark.parametrize(
  ("answers", "message", "asked"),
  [
    (
      {"realm_jax/finished": [0, "a-0 activating\na-5 failed", ""]},
      "failed on a-5 and will not",
      2,
    ),
    (
      {"realm_jax/finished": [0, "a-0 stopped\na-1 stopped", ""]},
      "stopped on a-0, a-1 and will",
      2,
    ),
    ({"realm_jax/finished": [1, "", "ERROR: no route to host"]}, "ERROR: no route to host", 11),
    ({"scp": [1, "", "ERROR: no route to host"]}, "ERROR: no route to host", 1),
  ],
)
def test_a_slice_whose_job_will_never_finish_is_not_kept_forever(
  gcloud, monkeypatch, capsys, answers, message, asked
):
  gcloud({**state("ACTIVE"), **answers})
  monkeypatch.setattr(tpu, "_POLL_SECONDS", 0)
  assert tpu.main(["keep", "trainer", "--type=v6e-64", "--", "pretrain"]) == 1
  said = capsys.readouterr().err.splitlines()[-1]
  assert said.startswith("keep trainer: ") and message in said
  assert sum(tpu.JOB_STATE in " ".join(call) for call in gcloud.calls()) == asked


def run_job(directory, python):
  """Starts the job's script with this shell script as its Python."""
  program = directory / ".venv" / "bin" / "python"
  program.parent.mkdir(parents=True)
  program.write_text(f"#!/bin/bash\n{python}\n")
  program.chmod(0o755)
  script = tpu.job_script(["pretrain", "--workdir=gs://b/a run"])
  return subprocess.Popen(["bash", "-c", script], cwd=directory, start_new_session=True)


def test_a_job_that_is_told_to_stop_may_save(tmp_path):
  saving = "trap 'sleep 0.3; touch saved; exit 143' TERM; touch up; sleep 20 & wait"
  job = run_job(tmp_path, saving)
  deadline = time.monotonic() + 20
  while not (tmp_path / "up").exists() and time.monotonic() < deadline:
    time.sleep(0.02)
  os.killpg(job.pid, signal.SIGTERM)  # as systemd does
  assert job.wait(20) == 143
  assert (tmp_path / "saved").exists() and not (tmp_path / "finished").exists()


@pytest.fixture
def on_host(tmp_path):
  """`on_host(script, systemctl)` runs a script where sudo only records its arguments."""
  programs = tmp_path / "bin"
  programs.mkdir()
  (tmp_path / "realm_jax").mkdir()
  noting = 'echo "$@" >> $HOME/said; [ $1 != tee ] || cat > $HOME/unit'
  host = {"HOME": str(tmp_path), "USER": "me", "PATH": f"{programs}:{os.environ['PATH']}"}

  def run(script, systemctl):
    for name, content in (("sudo", noting), ("systemctl", systemctl)):
      (programs / name).write_text(f"#!/bin/bash\n{content}\n")
      (programs / name).chmod(0o755)
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=tmp_path, env=host, capture_output=True, text=True)

  return run


@pytest.mark.parametrize(
  ("active", "enabled", "finished", "state"),
  [
    ("active", True, False, "active"),
    ("inactive", True, False, "inactive"),  # the host has just started
    ("inactive", True, True, "finished"),
    ("failed", True, False, "failed"),
    ("failed", False, False, "stopped"),
  ],
)
def test_a_host_tells_the_state_of_its_job(on_host, tmp_path, active, enabled, finished, state):
  if finished:
    (tmp_path / "realm_jax" / "finished").touch()
  systemctl = f"[ $1 = is-active ] && echo {active}; [ $1 = is-enabled ] && exit {int(not enabled)}"
  assert on_host(tpu.JOB_STATE, systemctl).stdout.split()[1:] == [state]


def test_a_service_starts_with_its_host(on_host, tmp_path):
  script = tpu.start_script(["pretrain", "--a=b c"], environment=["LIBTPU_INIT_ARGS=--x=true"])
  assert on_host(script, "exit 3").returncode == 0
  said = (tmp_path / "said").read_text().splitlines()
  asked = ("daemon-reload", "reset-failed realm", "enable --now realm")
  assert said[-3:] == [f"systemctl {words}" for words in asked]
  unit = (tmp_path / "unit").read_text()
  assert f"ConditionPathExists=!{tmp_path}/realm_jax/finished\n" in unit
  assert 'Environment="LIBTPU_INIT_ARGS=--x=true"' in unit and "User=me\n" in unit
  assert {"LimitMEMLOCK=infinity", "LimitNOFILE=1048576"} <= set(unit.splitlines())
  assert "'--a=b c'" in (tmp_path / "realm_jax" / "job.sh").read_text()
  if shutil.which("systemd-analyze"):
    service = tmp_path / "realm.service"
    service.write_text(unit.replace("User=me", "User=root"))
    checked = subprocess.run(
      ["systemd-analyze", "verify", "--man=no", service], capture_output=True, text=True
    )
    assert "realm.service" not in checked.stderr
  with pytest.raises(tpu.LaunchError, match="--env=A is not of the form NAME=VALUE"):
    tpu.start_script(["pretrain"], environment=["A"])
