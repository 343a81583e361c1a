"""What a wheel provides on a machine without the checkout."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("gin", "realm_jax", "tasks")
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """The unpacked wheel, built from a copy of the checkout."""
  source = tmp_path_factory.mktemp("source")
  for name in FOLDERS:
    shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
  for name in FILES:
    shutil.copy(ROOT / name, source)
  wheels = tmp_path_factory.mktemp("wheels")
  subprocess.run(
    [sys.executable, "-c", BUILD, wheels], cwd=source, check=True, stdout=subprocess.DEVNULL
  )
  (wheel,) = wheels.glob("*.whl")
  directory = tmp_path_factory.mktemp("installed")
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
  ours = files(ROOT, "realm_jax", "tasks") | {f"realm_jax/{name}" for name in files(ROOT, "gin")}
  assert files(installed, "realm_jax", "tasks") == ours
  (information,) = installed.glob("*.dist-info")
  assert "realm = realm_jax.main:main" in (information / "entry_points.txt").read_text()


def test_a_shipped_experiment_lacks_nothing_but_a_directory(installed, tmp_path):
  shown = subprocess.run(
    [sys.executable, "-m", "realm_jax.main", "demo", "--gin_file=gin/experiments/demo.gin"],
    env={**os.environ, "PYTHONPATH": str(installed)},
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert shown.returncode == 2
  assert shown.stderr == "realm: demo needs --workdir; see realm demo --help\n"
