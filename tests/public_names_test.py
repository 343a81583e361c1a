"""The public names, which docs/python.md lists, and what importing the package costs."""

import pathlib
import re
import subprocess
import sys

import realm_jax

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "python.md"

BARE = """
import os, sys
before = dict(os.environ)
import realm_jax
assert dict(os.environ) == before, "the environment changed"
loaded = {"jax", "flax", "tensorflow", "numpy"} & sys.modules.keys()
assert not loaded, loaded
realm_jax.DualEncoder
assert "jax" in sys.modules and "tensorflow" not in sys.modules
assert realm_jax.__dict__["DualEncoder"] is realm_jax.DualEncoder
"""


def test_the_public_names_are_those_of_the_document_and_exist():
  rows = re.findall(r"^\| (`.*?) \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
  listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
  assert sorted(listed) == sorted(set(realm_jax.__all__) - {"__version__"})
  assert all(getattr(realm_jax, name).__doc__ for name in listed)
  assert set(realm_jax.__all__) <= set(dir(realm_jax))


def test_importing_the_package_loads_and_changes_nothing():
  subprocess.run([sys.executable, "-c", BARE], check=True)
