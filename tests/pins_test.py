"""The pins suit what the pinned JAX asks of its accelerators."""

import importlib.metadata
import pathlib
import runpy
from unittest import mock

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).parent.parent


def test_libtpu_is_the_release_that_jax_was_made_for():
  """With another one, pip finds no solution for `.[tpu]` and these pins."""
  lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
  pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
  here = {pin.name: pin.specifier for pin in pins if not pin.marker or pin.marker.evaluate()}
  if not here["jax"].contains(importlib.metadata.version("jax")):
    pytest.skip("another JAX than the pinned one is installed")
  asked = map(Requirement, importlib.metadata.requires("jax") or ())
  asked = [need for need in asked if need.marker and need.marker.evaluate({"extra": "tpu"})]
  assert "libtpu" in {need.name for need in asked}
  for need in asked:
    [pin] = here[need.name]
    assert need.specifier.contains(pin.version), f"{pin} is pinned, jax[tpu] asks for {need}"


def test_the_jax_that_computes_wrongly_is_refused_and_the_pinned_ones_are_not():
  with mock.patch("setuptools.setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  [jax] = [
    need
    for need in map(Requirement, setup.call_args.kwargs["extras_require"]["encoder"])
    if need.name == "jax"
  ]
  assert not jax.specifier.contains("0.10.2")
  lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
  pins = [Requirement(line).specifier for line in lines if line.startswith("jax==")]
  assert pins and all(jax.specifier.contains(pin.version) for [pin] in pins)
