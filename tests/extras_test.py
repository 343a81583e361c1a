"""Each extra, installed from the wheel in an environment of its own, runs what it promises."""

import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import pytest

from tests import wheel_test
from tests.corpus.document_files_test import pdf
from tests.knowledge_base import tiny_models

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Megabytes of everything that an environment holds, pip apart.
MOST = {"": 200, "serve": 230, "documents": 215, "mcp": 260, "parquet": 400, "encoder": 850}
ANSWER = "causes the flutter of a wing"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  directory = tmp_path_factory.mktemp("wheel")
  clone = wheel_test.copied(directory)
  build = [sys.executable, "-c", wheel_test.BUILD.format("build_wheel"), directory]
  subprocess.run(build, cwd=clone, check=True, capture_output=True)
  return next(directory.glob("*.whl"))


class Environment:
  """An environment with one extra, and a folder of texts beside it."""

  def __init__(self, directory, wheel, extra):
    self.directory, self.extra = directory, extra
    subprocess.run([sys.executable, "-m", "venv", directory / "env"], check=True)
    self._pip = [directory / "env/bin/python", "-m", "pip", "--disable-pip-version-check"]
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    constraints = ["--constraint", ROOT / "constraints.txt"]
    done = subprocess.run(
      [*self._pip, "install", "--quiet", "--no-compile", wanted, *constraints],
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stderr
    texts = directory / "texts"
    texts.mkdir()
    (texts / "wing.md").write_text("# Wings\n\nSpeed causes the flutter of a wing.\n")
    (texts / "oak.txt").write_text("Oaks\n\nOaks are tall trees.\n")

  @property
  def megabytes(self):
    (packages,) = self.directory.glob("env/lib/python3*/site-packages")
    files = (f for f in packages.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    ours = (f for f in files if not f.relative_to(packages).parts[0].startswith("pip"))
    return sum(f.stat().st_size for f in ours) / 1e6

  def python(self, *arguments, code=0):
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
      [self.directory / "env/bin/python", *arguments],
      cwd=self.directory,
      env={**plain, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr

  def realm(self, *arguments, code=0):
    return self.python("env/bin/realm", *arguments, code=code)


@pytest.mark.parametrize("extra", list(MOST))
def test_an_extra_is_as_small_as_its_use_and_does_what_it_promises(wheel, tmp_path, extra):
  environment = Environment(tmp_path, wheel, extra)
  _is_small_and_searches(environment)
  _names_the_extra_of_what_it_lacks(environment)
  _does_what_it_is_for(environment)


def _is_small_and_searches(environment):
  assert environment.megabytes < MOST[environment.extra]
  assert "2 added" in environment.realm("kb", "create", "kb", "texts")
  assert "wing.md" in environment.realm("kb", "search", "kb", f"what {ANSWER}", "--k=1")
  (environment.directory / "note.jsonl").write_text(json.dumps({"text": "Moss is small."}))
  environment.realm("kb", "add", "kb", "note.jsonl")
  assert "Moss" in environment.realm("kb", "search", "kb", "how small is moss", "--k=1")
  script = f"import realm_jax; print(*realm_jax.KnowledgeBase('kb').search('{ANSWER}'))"
  assert "Speed causes" in environment.python("-c", script)
  imported = "import sys, realm_jax.main; print({'jax', 'gin', 'tensorflow'} & set(sys.modules))"
  assert environment.python("-c", imported).strip() == "set()"


def _names_the_extra_of_what_it_lacks(environment):
  wanted = "kb add kb scan.pdf", "kb serve kb --port=0", "kb mcp kb", "check"
  for job, brings in zip(wanted, ("documents", "serve", "mcp", "train"), strict=True):
    if environment.extra == brings or (environment.extra, brings) == ("mcp", "serve"):
      continue
    (environment.directory / "scan.pdf").write_bytes(pdf([(11, "Moss is small.")]))
    said = environment.realm(*job.split(), code=1).strip()
    assert f"pip install 'realm_jax[{brings}]'" in said and "Traceback" not in said


def _does_what_it_is_for(environment):
  folder = environment.directory
  if environment.extra == "documents":
    (folder / "moss.pdf").write_bytes(pdf([(11, "Moss grows on stones.")]))
    environment.realm("kb", "add", "kb", "moss.pdf")
    assert "moss.pdf" in environment.realm("kb", "search", "kb", "moss grows on stones", "--k=1")
  if environment.extra == "parquet":
    table = "pyarrow.table({'text': ['Figs.']})"
    write = f"from pyarrow import parquet; parquet.write_table({table}, 'f.parquet')"
    environment.python("-c", f"import pyarrow; {write}")
    environment.realm("kb", "add", "kb", "f.parquet")
    assert "Figs." in environment.realm("kb", "search", "kb", "figs", "--k=1")
  if environment.extra == "encoder":
    model = tiny_models.write(folder / "model")
    environment.realm("kb", "create", "meaning", "texts", f"--encoder={model}")
    assert "wing.md" in environment.realm("kb", "search", "meaning", ANSWER, "--by=encoder")
  if environment.extra in ("serve", "mcp"):
    command = [folder / "env/bin/realm", "kb", "serve", "kb", "--port=0"]
    with subprocess.Popen(
      command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
      try:
        assert server.stdout
        lines = iter(server.stdout.readline, "")
        address = next(m[0] for m in (re.search(r"http://[\w.:]+", line) for line in lines) if m)
        with urllib.request.urlopen(f"{address}/?q=flutter") as page:
          assert "wing.md" in page.read().decode()
      finally:
        server.terminate()
