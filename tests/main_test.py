"""The entry point: what a command line runs, and the one-line error of a wrong one."""

import importlib.util
import inspect
import json
import logging
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from realm_jax import main
from realm_jax.command_line import flags

TOY_JOB = '''\
"""Recites a line into a file."""

import dataclasses
import json
import pathlib
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Voice:
  """A voice.

  Attributes:
    volume: how loud.
    pitch: how high.
  """

  volume: int = 1
  pitch: float = 0.5

  def __post_init__(self):
    if self.volume < 0:
      raise ValueError(f"volume {self.volume} < 0")


def toy(
  *,
  line: str,
  workdir: str,
  times: int = 1,
  tone: Literal["flat", "high"] = "flat",
  loud: bool = False,
  pauses: tuple[float, ...] = (0.5, 1.0),
  limit: int | None = None,
  voice: Voice = Voice(),
):
  """Writes what it was given.

  Args:
    line: the text, 100 % of it.
    workdir: folder of the file.
    times: how often.
    tone: manner.
    loud: whether to shout.
    pauses: seconds between words.
    limit: most words.
    voice: whose voice.
  """
  if times > 5:
    raise ValueError(f"times {times} > 5;\\n  say it less often")
  if line == "bug":
    raise TypeError("a bug")
  if line == "stop":
    raise KeyboardInterrupt
  if line == "missing":
    open(line)
  if line == "full":
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")
  said = [line, times, tone, loud, pauses, limit, dataclasses.astuple(voice)]
  pathlib.Path(workdir, "said.json").write_text(json.dumps(said))
'''

GIN_HEADER = "from __gin__ import dynamic_registration\nimport toy_recital\n"
# A job's name is its function's; here the module has another name, to tell them apart.
JOBS = {"toy": "toy_recital", "absent": "toy_absent"}


@pytest.fixture(scope="module", autouse=True)
def toy_job(tmp_path_factory):
  folder = tmp_path_factory.mktemp("jobs")
  (folder / "toy_recital.py").write_text(TOY_JOB)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(folder))
    yield


@pytest.fixture
def write_gin(tmp_path):
  def write(name, text):
    (tmp_path / name).write_text(GIN_HEADER + text)
    return f"--gin_file={tmp_path / name}"

  return write


def _said(tmp_path, *arguments):
  assert main.main(["toy", f"--workdir={tmp_path}", *arguments], jobs=JOBS) == 0
  return json.loads((tmp_path / "said.json").read_text())


def _complaint(capsys, *arguments):
  """Returns the exit code and the one line on stderr."""
  code = main.main(arguments, jobs=JOBS)
  complaint = capsys.readouterr().err
  assert complaint.endswith("\n") and complaint.count("\n") == 1, complaint
  return code, complaint.strip()


def test_plain_flags_reach_the_job_with_their_types(tmp_path):
  said = _said(
    tmp_path, "--line=a = b", "--times=0_2", "--tone", "high", "--loud", "--pauses=1,2", "--limit=9"
  )
  assert said == ["a = b", 2, "high", True, [1.0, 2.0], 9, [1, 0.5]]


def test_flag_beats_gin_binding_beats_file_beats_default(tmp_path, write_gin):
  file = write_gin("a.gin", "toy_recital.toy:\n  line = 'file'\n  times = 2\n  loud = True\n")
  binding = "--gin.toy.times=3"
  assert _said(tmp_path, file)[:4] == ["file", 2, "flat", True]
  assert _said(tmp_path, binding, file)[:2] == ["file", 3]
  assert _said(tmp_path, "--times=4", binding, file)[:2] == ["file", 4]


def test_the_later_of_two_gin_files_wins(tmp_path, write_gin):
  first = write_gin("a.gin", "toy_recital.toy.line = 'first'\n")
  second = write_gin("b.gin", "toy_recital.toy.line = 'second'\n")
  assert _said(tmp_path, first, second)[0] == "second"
  assert _said(tmp_path, second, first)[0] == "first"


def test_a_gin_file_may_come_from_windows(tmp_path, capsys):
  file = tmp_path / "a.gin"
  text = "from __gin__ import dynamic_registration\r\nimport toy_recital\r\n"
  text += "toy_recital.toy.line = 'é'\r\n"
  for encoding in ("utf-8-sig", "utf-16"):
    file.write_bytes(text.encode(encoding))
    assert _said(tmp_path, f"--gin_file={file}")[0] == "é"
  file.write_bytes(text.encode("latin-1"))
  code, complaint = _complaint(capsys, "toy", f"--gin_file={file}")
  assert code == 2 and "a.gin, line 3 is not UTF-8" in complaint


def test_macros_and_objects_are_set_from_the_command_line(tmp_path, write_gin):
  file = write_gin(
    "a.gin",
    "LINE = 'x'\nVOLUME = %gin.REQUIRED\ntoy_recital.toy.line = %LINE\n"
    "toy_recital.toy.voice = @toy_recital.Voice()\ntoy_recital.Voice.volume = %VOLUME\n",
  )
  said = _said(tmp_path, file, "--gin.LINE='y'", "--gin.VOLUME=7", "--gin.Voice.pitch=2.5")
  assert said[0] == "y"
  assert said[-1] == [7, 2.5]


def test_a_plain_flag_fills_what_gin_requires(tmp_path, write_gin):
  file = write_gin("a.gin", "toy_recital.toy.line = %gin.REQUIRED\n")
  assert _said(tmp_path, file, "--line=given")[0] == "given"


def test_gin_files_are_found_in_the_current_folder_and_then_in_the_package(
  tmp_path, write_gin, monkeypatch, capsys
):
  write_gin("here.gin", "include 'near.gin'\ninclude 'gin/models/demo.gin'\n")
  write_gin("near.gin", "toy_recital.toy.line = 'found'\n")
  monkeypatch.chdir(tmp_path)
  assert _said(tmp_path, "--gin_file=here.gin")[0] == "found"
  assert capsys.readouterr().err == ""


def test_the_configs_written_run_the_same_again(tmp_path, write_gin):
  file = write_gin("a.gin", "V = 3\ntoy_recital.toy.voice = @toy_recital.Voice()\n")
  arguments = ["--line=it's", "--gin.toy_recital.Voice.volume=%V", "--pauses=0.25", "--limit=4"]
  said = _said(tmp_path, file, *arguments)
  # Defaults that were in effect stand in the operative config only.
  assert "tone" not in (tmp_path / "toy_config.gin").read_text()
  for config in ("toy_config.gin", "toy_operative_config.gin"):
    (tmp_path / "said.json").unlink()
    assert main.main(["toy", f"--gin_file={tmp_path / config}"], jobs=JOBS) == 0
    assert json.loads((tmp_path / "said.json").read_text()) == said
  assert sorted(p.name for p in tmp_path.iterdir()) == [
    "a.gin",
    "directory.lock",
    "said.json",
    "toy_config.gin",
    "toy_operative_config.gin",
  ]


@pytest.mark.parametrize(
  ("arguments", "named"),
  [
    (["toy", "--gin.toy.times="], ("--gin.toy.times=",)),
    (["toy", "--gin.toy.voice=@Voise()"], ("Voise",)),
    (["toy", "--gin.toy.times=%gin.REQUIRED"], ("toy.times", "REQUIRED")),
  ],
)
def test_a_wrong_command_line_ends_in_one_line_with_the_names(capsys, arguments, named):
  code, complaint = _complaint(capsys, *arguments)
  assert code == 2
  assert all(name in complaint for name in named), complaint


@pytest.mark.parametrize(
  ("text", "named"),
  [
    ("include 'gone.gin'", ("gone.gin", "line 3")),
    ("TIMS = 3\nTIMES = 2\ntoy_recital.toy.times = %TIMES", ("TIMS", "did you mean TIMES?")),
    (
      "toy_recital.toy:\n  line = 'x'\n  workdir = 'w'\n  voice = @toy_recital.Voice()\n"
      "toy_recital.Voice.volume = -1",
      ("volume -1 < 0",),
    ),
    ("toy_recital.toy:\n  line = @toy_recital.toy\n  workdir = 'w'", ("line=<function toy",)),
    ("toy_recital.toy:\n  line = 'x'\n  workdir = 'w'\n  voice = 3", ("voice=3", "class Voice")),
  ],
)
def test_a_wrong_gin_file_ends_in_one_line_with_the_names(
  capsys, write_gin, monkeypatch, tmp_path, text, named
):
  monkeypatch.chdir(tmp_path)
  code, complaint = _complaint(capsys, "toy", write_gin("a.gin", text + "\n"))
  assert code == 2
  assert all(name in complaint for name in named), complaint
  assert [file.name for file in tmp_path.iterdir()] == ["a.gin"], "nothing was written"


def test_what_a_job_refuses_ends_in_one_line(capsys, tmp_path):
  workdir = f"--workdir={tmp_path}"
  assert _complaint(capsys, "toy", workdir, "--line=x", "--times=6") == (
    1,
    "realm toy: times 6 > 5; say it less often",
  )
  code, complaint = _complaint(capsys, "toy", workdir, "--line=missing")
  assert code == 1
  assert complaint == "realm toy: [Errno 2] No such file or directory: 'missing'"
  assert _complaint(capsys, "toy", workdir, "--line=stop") == (130, "realm: interrupted")
  code, complaint = _complaint(capsys, "toy", workdir, "--line=full")
  assert code == 1 and complaint.startswith("realm toy: RESOURCE_EXHAUSTED: Out of memory")
  assert "Lower batch_size" in complaint


@pytest.mark.parametrize("who_sets_up_the_root", ["nobody", "user", "library"])
def test_notices_of_the_package_and_all_warnings_are_shown(
  capsys, monkeypatch, tmp_path, who_sets_up_the_root
):
  """Once and unchanged, however many jobs ran and whatever set up the root logger."""
  monkeypatch.setattr(logging.getLogger(), "handlers", [])
  if who_sets_up_the_root == "user":
    logging.getLogger().addHandler(logging.StreamHandler(sys.stderr))
  _said(tmp_path, "--line=x")
  _said(tmp_path, "--line=x")
  if who_sets_up_the_root == "library":
    logging.basicConfig()
  logger = logging.getLogger("absl")
  for name, level in (("own", "INFO"), ("other", "INFO"), ("other", "WARNING")):
    path = main.__file__ if name == "own" else "/other/library.py"
    logger.handle(
      logger.makeRecord("absl", logging.getLevelName(level), path, 1, f"{name} {level}", (), None)
    )
  assert capsys.readouterr().err.splitlines() == ["own INFO", "other WARNING"]


def test_a_traceback_is_shown_on_request(capsys, monkeypatch, tmp_path):
  arguments = ["toy", f"--workdir={tmp_path}", "--line=x", "--times=6"]
  assert main.main([*arguments, "--traceback"], jobs=JOBS) == 1
  assert "toy_recital.py" in capsys.readouterr().err
  monkeypatch.setenv("REALM_TRACEBACK", "1")
  assert main.main(arguments, jobs=JOBS) == 1
  assert "toy_recital.py" in capsys.readouterr().err


def test_a_bug_in_a_job_is_not_hidden(tmp_path):
  with pytest.raises(TypeError, match="a bug"):
    main.main(["toy", f"--workdir={tmp_path}", "--line=bug"], jobs=JOBS)


def test_help_lists_the_jobs_that_exist(capsys):
  assert main.main(["--help"], jobs=JOBS) == 0
  assert capsys.readouterr().out.endswith(
    "jobs:\n  toy                  Recites a line into a file.\n"
  )


def test_help_of_a_job_lists_every_keyword_with_default_and_meaning(capsys):
  assert main.main(["toy", "--help"], jobs=JOBS) == 0
  shown = " ".join(capsys.readouterr().out.split())
  for part in (
    "--line TEXT the text, 100 % of it. (required)",
    "--tone flat|high manner. (default: flat)",
    "--pauses FLOAT,... seconds between words. (default: 0.5,1.0)",
    "--limit INT or none most words. (default: none)",
    "voice: --volume INT how loud. (default: 1) --pitch FLOAT",
    "--gin_file",
  ):
    assert part in shown


def test_a_positional_keyword_may_stand_without_its_name(tmp_path, monkeypatch):
  (tmp_path / "echo.py").write_text(
    '"""Says."""\n\ndef echo(line: str, *, path: str):\n  open(path, "w").write(line)\n'
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  said = tmp_path / "said.txt"
  jobs = {"echo": "echo"}
  assert main.main(["echo", "The [MASK].", f"--path={said}"], jobs=jobs) == 0
  assert said.read_text() == "The [MASK]."
  assert main.main(["echo", f"--path={said}", "--line=named"], jobs=jobs) == 0
  assert said.read_text() == "named"
  assert main.main(["echo", "one", "two", f"--path={said}"], jobs=jobs) == 2
  assert main.main(["echo", f"--path={said}"], jobs=jobs) == 2
  assert said.read_text() == "named"


@pytest.mark.parametrize(
  ("joining", "message"),
  [
    ("--coordinator=h:1 --num_processes=-3 --process_id=0", "num_processes=-3; give at least 1"),
    (f"--coordinator=h:1 --num_processes={2**70} --process_id=0", "and below 2147483648"),
    ("--coordinator=h:1 --num_processes=2 --process_id=-1", "process_id=-1; give at least 0"),
    ("--coordinator=h:1 --num_processes=2 --process_id=2", "process_id=2 is not in 0 to 1"),
    ("--coordinator=nonsense --num_processes=1 --process_id=0", "coordinator=nonsense; give HOST"),
    ("--num_processes=2", "give all three"),
  ],
)
def test_processes_that_cannot_join_are_told_in_a_line(joining, message, capsys):
  assert main.main(["check", *joining.split()]) == 2
  assert message in capsys.readouterr().err


def test_help_and_version_do_not_wait_for_jax():
  code = (
    "import sys; from realm_jax import main; main.main(['--help']); main.main(['--version']);"
    "assert not {'jax', 'numpy', 'tensorflow'} & set(sys.modules)"
  )
  shown = subprocess.run(
    [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=_root()
  ).stdout
  assert re.search(r"\nrealm_jax \d+\.\d+\.\d+\n$", shown)


@pytest.mark.parametrize("kept", ["cache/compiled", "runs/compiled"])
def test_a_second_run_compiles_nothing(tmp_path, kept):
  """Kept in $REALM_CACHE, or beside the workdir of joined processes."""
  tmp_path.joinpath("multiply.py").write_text(
    "import jax\n"
    "def multiply(*, workdir: str):\n"
    "  jax.monitoring.register_event_listener(lambda event, **_: print(event))\n"
    "  jax.jit(lambda matrix: matrix @ matrix)(jax.numpy.ones((2, 2))).block_until_ready()\n"
  )
  unset = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
  variables = {name: value for name, value in os.environ.items() if name not in unset}
  variables["REALM_CACHE"] = str(tmp_path / "cache")
  variables["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{_root()}"
  command = ["multiply", f"--workdir={tmp_path}/runs/one"]
  if kept == "runs/compiled":
    with socket.socket() as listener:
      listener.bind(("127.0.0.1", 0))
      command += [f"--coordinator=127.0.0.1:{listener.getsockname()[1]}"]
    command += ["--num_processes=1", "--process_id=0"]
  code = f"from realm_jax import main; main.main({command}, jobs={{'multiply': 'multiply'}})"

  def run():
    run = [sys.executable, "-c", code]
    shown = subprocess.run(run, check=True, env=variables, capture_output=True, text=True).stdout
    return [shown.count(f"/jax/compilation_cache/cache_{what}") for what in ("hits", "misses")]

  hits, misses = run()
  assert hits == 0 < misses
  assert run() == [misses, 0]
  assert list((tmp_path / kept).glob("**/jit__lambda*"))


@pytest.mark.parametrize("words", [["--help"], ["plan", "-h"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_quietly(words, unbuffered):
  read, write = os.pipe()
  os.close(read)
  run = subprocess.run(
    [sys.executable, "-m", "realm_jax.main", *words],
    stdout=write,
    stderr=subprocess.PIPE,
    env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    check=False,
  )
  os.close(write)
  assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, b"")


def test_the_exit_code_of_the_process_is_that_of_main():
  run = subprocess.run(
    [sys.executable, "-m", "realm_jax.main", "pretend"], capture_output=True, text=True, cwd=_root()
  )
  assert run.returncode == 2
  assert run.stderr.startswith("realm: no job is named 'pretend'")


@pytest.mark.parametrize("name", [n for n, m in main.JOBS.items() if importlib.util.find_spec(m)])
def test_every_job_documents_its_keywords(name):
  job = main.find(name)
  first, *others = inspect.signature(job).parameters.values()
  assert first.kind in (first.KEYWORD_ONLY, first.POSITIONAL_OR_KEYWORD)
  assert {p.kind for p in others} <= {first.KEYWORD_ONLY, first.POSITIONAL_OR_KEYWORD}
  keywords = flags.keywords(job)
  assert [k.name for k in keywords if not k.meaning] == []
  assert [k.name for k in keywords if k.annotation is inspect.Parameter.empty] == []
  common = {k.name for k in flags.keywords(main._common_flags)}
  assert not common & {k.name for k in keywords}


def _root():
  return pathlib.Path(__file__).resolve().parent.parent


def test_a_job_may_be_a_file_of_ones_own(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(sys, "path", [*sys.path])
  monkeypatch.setenv("PYTHONPATH", "")
  (tmp_path / "own_job.py").write_text(
    "import os, pathlib\n"
    "def own_job(*, workdir: str, times: int = 1):\n"
    "  pathlib.Path(workdir, 'said').write_text(f\"{times} {os.environ['PYTHONPATH']}\")\n"
  )
  job = str(tmp_path / "own_job.py")
  assert main.main([job, f"--workdir={tmp_path / 'run'}", "--gin.own_job.times=3"]) == 0
  assert (tmp_path / "run" / "said").read_text() == f"3 {tmp_path}"
  assert "own_job.own_job.times = 3" in (tmp_path / "run" / "own_job_config.gin").read_text()
  (tmp_path / "other.py").write_text("")
  for name in ("other.py", "absent.py"):
    assert main.main([str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_the_help_of_a_verb_shows_what_needs_no_flag_and_examples(capsys):
  assert main.main(["kb", "add", "--help"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == "usage: realm kb add PATH [TEXTS]... [--KEYWORD=VALUE]..."
  assert "  realm kb add kb notes.jsonl" in lines[:8]
  for job in main.JOBS:
    main.main([*job.split(), "--help"])
    examples = [line for line in capsys.readouterr().out.splitlines() if line[:8] == "  realm "]
    assert all(line.startswith(f"  realm {job} ") for line in examples)
