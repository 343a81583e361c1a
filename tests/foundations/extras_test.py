"""What is installed without extras searches, and what more needs one names it."""

import runpy
import subprocess
import sys
from unittest import mock

import pytest

from realm_jax.foundations import extras
from tests.wheel_test import ROOT

# Refuses the libraries of all extras, as if they were not installed.
WITHOUT = """
import importlib.abc
import sys

from realm_jax.foundations import extras

class Finder(importlib.abc.MetaPathFinder):
  def find_spec(self, fullname, path=None, target=None):
    library = fullname.partition(".")[0]
    if library != "libtpu" and library in " ".join(extras._LIBRARIES.values()).split():
      raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

sys.meta_path.insert(0, Finder())
from realm_jax.main import main
for line in sys.argv[1:]:
  print(main(line.split()))
"""


def test_words_are_searched_without_any_extra_and_what_needs_one_names_it(tmp_path):
  """In one process, as if none were installed."""
  (tmp_path / "moss.md").write_text("---\nyear: 1958\n---\n# Moss\nMoss grows in the shade.\n")
  (tmp_path / "oak.txt").write_text("An oak is tall.\n")
  questions = (f'{{"question": "shade {n}", "answer": "moss"}}\n' for n in range(200))
  (tmp_path / "q.jsonl").write_text("".join(questions))
  works = [
    "kb create kb moss.md",
    "kb add kb oak.txt",
    "kb search kb shade --k=1",
    'kb search kb tall --where={"year":{"exists":false}}',
    "kb delete kb oak.txt",
    "kb compact kb --purge",
    "pretrain --help",
    "examples",
  ]
  needs = {
    "kb train kb q.jsonl": "encoder",
    "kb serve kb": "serve",
    "kb sync kb moss.md --watch": "watch",
    "build_index --checkpoints=c --passages=p --index=i": "train",
    "prepare_corpus --input=q.jsonl --output=out --vocabulary=.": "train",
  }
  program = [sys.executable, "-c", WITHOUT, *works, *needs]
  done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
  assert not done.returncode, done.stderr
  codes = [line for line in done.stdout.splitlines() if line in ("0", "1")]
  assert codes == [*"0" * len(works), *"1" * len(needs)] and "Moss grows in the" in done.stdout
  named = [line.partition("'.[")[2].partition("]")[0] for line in done.stderr.splitlines()]
  assert named == [*needs.values()]


@pytest.mark.parametrize("is_checkout", [True, False])
def test_the_command_suits_a_checkout_and_a_wheel(tmp_path, monkeypatch, is_checkout):
  monkeypatch.setattr(extras, "_CHECKOUT", ROOT if is_checkout else tmp_path)
  commands = "pip install 'realm_jax[serve]'", "pip install -e '.[serve]' in the checkout"
  assert extras.how_to_install("serve") == commands[is_checkout]


def test_every_extra_that_a_message_names_exists():
  with mock.patch("setuptools.setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  assert extras._LIBRARIES.keys() <= setup.call_args.kwargs["extras_require"].keys()
