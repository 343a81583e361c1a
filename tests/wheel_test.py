"""What a wheel provides on a machine without the checkout."""

import email
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.knowledge_base import tiny_models

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKED = ("examples", "gin", "launch")
FOLDERS = (*LINKED, "realm_jax")
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
BUILD = "import sys; from setuptools import build_meta; build_meta.{}(sys.argv[1])"
SHOW = "import site; site.addsitedir({!r}); import realm_jax as r; print(r.__version__, r.__file__)"

GUIDE = (ROOT / "docs/own_corpus.md").read_text("utf-8")
CHANGING, *_ = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
TEN_LINES = f"""
import realm_jax
realm_jax.KnowledgeBase.create("kb", texts="docs/")
{CHANGING}
print(kb.evaluate("questions.jsonl"))
kb.add_reader("runs/squad/finetune")
print(kb.answer("what causes the flutter of a wing"))
print(kb, realm.__file__)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
  return copied(tmp_path_factory.mktemp("source"))


def copied(directory):
  """Returns a copy of the checkout, in a folder with the name of the package."""
  source = directory / "realm_jax"
  for name in FOLDERS:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / name, source / name, ignore=ignored, symlinks=True)
  for name in FILES:
    shutil.copy(ROOT / name, source)
  return source


@pytest.fixture(scope="module")
def installed(clone, tmp_path_factory):
  """The unpacked wheel of a release."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("REPOSITORY_URL", "https://example.org/us/realm_jax/")
    return _install(clone, tmp_path_factory.mktemp("installed"), "build_wheel")


def _install(clone, directory, build):
  subprocess.run(
    [sys.executable, "-c", BUILD.format(build), directory],
    cwd=clone,
    check=True,
    stdout=subprocess.DEVNULL,
  )
  (wheel,) = directory.glob("*.whl")
  zipfile.ZipFile(wheel).extractall(directory)
  return directory


def files(root, *folders):
  return {
    path.relative_to(root).as_posix()
    for folder in folders
    for path in (root / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  }


def test_every_file_of_the_package_is_in_the_wheel(installed):
  ours = files(ROOT, "realm_jax") | {f"realm_jax/{name}" for name in files(ROOT, *LINKED)}
  assert files(installed, "realm_jax", "tasks") == ours  # `tasks` is a name that users have
  (information,) = installed.glob("*.dist-info")
  assert "realm = realm_jax.main:main" in (information / "entry_points.txt").read_text()


def test_no_wheel_lacks_what_links_have(tmp_path):
  source = copied(tmp_path)
  (source / "realm_jax" / "gin").unlink()
  (source / "realm_jax" / "gin").write_text("../gin")  # as a zip has it
  command = [sys.executable, "-c", BUILD.format("build_wheel"), tmp_path]
  built = subprocess.run(command, cwd=source, capture_output=True, text=True)
  assert built.returncode and "realm_jax/gin is no link to" in built.stderr
  assert not [*tmp_path.glob("*.whl")]


def test_an_index_shows_a_release_with_its_licence_and_links_that_hold(installed):
  (file,) = installed.glob("*.dist-info/METADATA")
  metadata = email.message_from_string(file.read_text("utf-8"))
  address = "https://example.org/us/realm_jax"
  assert metadata["License-Expression"] == "Apache-2.0"
  assert f"Issues, {address}/issues" in metadata.get_all("Project-URL")
  links = re.findall(r"\]\(([^)]*)\)", metadata.get_payload())
  assert len(links) > 20 and all(re.match(r"https://|#", link) for link in links)
  assert f"{address}/raw/v{metadata['Version']}/docs/images/curves.png" in links
  [changes] = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[:1]
  assert re.fullmatch(rf"{metadata['Version']}, \d{{4}}-\d\d-\d\d", changes)


def test_examples_and_scripts_that_launch_come_with_it(installed, tmp_path):
  run = [sys.executable, "-c", "import sys; from realm_jax.main import main; sys.exit(main())"]
  environment = {**os.environ, "PYTHONPATH": str(installed)}
  show = functools.partial(subprocess.run, env=environment, cwd=tmp_path, text=True)
  listed = show([*run, "examples"], capture_output=True, check=True).stdout
  assert "examples/own_loop.py " in listed and "launch/gcloud/tpu.py " in listed
  show([*run, "examples", "--output=here"], check=True)
  assert files(tmp_path / "here", *LINKED) == files(ROOT, *LINKED)
  again = show([*run, "examples", "--output=here"], capture_output=True)
  assert again.returncode == 1 and "here exists" in again.stderr


@pytest.mark.timeout(600)
def test_a_knowledge_base_takes_ten_lines_and_no_checkout(installed, tmp_path):
  (tmp_path / "docs").mkdir()
  (tmp_path / "docs" / "wing.txt").write_text("Wings\n\nSpeed causes the flutter of a wing.\n")
  question = {"question": "what causes the flutter of a wing", "answer": "speed"}
  (tmp_path / "questions.jsonl").write_text(json.dumps(question))
  tiny_models.write(tmp_path / "runs/squad/finetune", reads=True)
  shown = subprocess.run(
    [sys.executable, "-c", TEN_LINES],
    env={**os.environ, "PYTHONPATH": str(installed)},
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  added, first, *rest = shown.stdout.splitlines()
  assert "1 added" in added
  assert "n1 A note Wings flutter in dives." in first and "wing.txt" not in first
  assert any(re.fullmatch(r"words +1\.000 .*", line) for line in rest), "evaluated"
  assert any("% of what could be the answer)" in line for line in rest), "answered"
  assert rest[-1] == f"kb: 1 documents in 1 passages, language en {installed}/realm_jax/__init__.py"


@pytest.mark.parametrize("build", ["build_wheel", "build_editable"])
def test_above_a_clone_the_installed_package_is_imported_not_the_folder(clone, tmp_path, build):
  directory = _install(clone, tmp_path, build)
  shown = subprocess.run(
    [sys.executable, "-S", "-c", SHOW.format(str(directory))],  # without what is installed here
    env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    cwd=clone.parent,
    check=True,
    capture_output=True,
    text=True,
  )
  place = directory if build == "build_wheel" else clone
  assert shown.stdout.split()[1] == str(place / "realm_jax/__init__.py")
