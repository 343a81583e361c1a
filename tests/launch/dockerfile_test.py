"""The image of launch/Dockerfile, as far as it can be checked without a daemon."""

import json
import pathlib
import re
import runpy
import shlex
import string
from unittest import mock

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests import wheel_test

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = ROOT / "launch" / "Dockerfile"


@pytest.fixture(scope="module")
def instructions():
  """`instructions(name)` returns the words of every instruction of a name, with ARGs filled in."""
  text = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
  lines = [line for line in text.splitlines() if line and not line.startswith("#")]
  pairs = [line.split(maxsplit=1) for line in lines]
  given = dict(rest.split("=", 1) for name, rest in pairs if name == "ARG")

  def words(wanted):
    return [
      shlex.split(string.Template(rest).substitute(given)) for name, rest in pairs if name == wanted
    ]

  return words


@pytest.fixture(scope="module")
def package():
  """The arguments of setup.py."""
  with mock.patch("setuptools.setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  return setup.call_args.kwargs


def python_version(instructions):
  [[image]] = instructions("FROM")
  return re.fullmatch(r"python:(\d+\.\d+)-slim", image)[1]


def test_all_that_is_copied_exists_and_all_that_is_needed_is_copied(instructions, package):
  copied = [source for *sources, _ in instructions("COPY") for source in sources]
  assert all((ROOT / source).exists() for source in copied)
  assert {"gin", "realm_jax", *wheel_test.FILES, "constraints.txt"} <= set(copied)
  assert SpecifierSet(package["python_requires"]).contains(python_version(instructions))


def test_every_requirement_of_the_image_has_a_pin_that_suits_it(instructions, package):
  [words] = instructions("RUN")
  assert words[:2] == ["pip", "install"] and "--constraint constraints.txt" in " ".join(words)
  extras = re.fullmatch(r"\.\[(.+)\]", words[-1])[1].split(",")
  environment = {"python_version": python_version(instructions)}
  pins = {}
  for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
    if line and not line.startswith("#"):
      pin = Requirement(line)
      if pin.marker is None or pin.marker.evaluate(environment):
        [pins[canonicalize_name(pin.name)]] = pin.specifier
  waiting, known = [*map(Requirement, package["install_requires"])], set()
  waiting.append(Requirement(f"realm_jax[{','.join(extras)}]"))
  while waiting:
    requirement = waiting.pop()
    if requirement.name == "realm_jax":
      new = requirement.extras - known
      known |= new
      waiting += [Requirement(line) for extra in new for line in package["extras_require"][extra]]
      continue
    assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)].version)


def test_the_image_is_the_program_that_the_launcher_starts(instructions):
  launcher = (ROOT / "launch" / "xm_launch.py").read_text("utf-8")
  [words] = instructions("ENTRYPOINT")
  assert words[0] == "[python,"  # in the form that passes arguments on
  assert 'args=["-m", "realm_jax.main"]' in launcher
  entry = DOCKERFILE.read_text("utf-8").rpartition("ENTRYPOINT ")[2]
  assert json.loads(entry) == ["python", "-m", "realm_jax.main"]
