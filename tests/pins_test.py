"""The pins suit what the pinned JAX asks of its accelerators."""

import importlib.metadata
import pathlib

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
