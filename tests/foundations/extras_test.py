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


def run(directory, *commands):
  """Runs commands in one process that has no extra; returns its output, and what it complains."""
  done = subprocess.run(
    [sys.executable, "-c", WITHOUT, *commands], cwd=directory, capture_output=True, text=True
  )
  assert not done.returncode, done.stderr
  return done.stdout, done.stderr


def test_words_are_searched_without_any_extra(tmp_path):
  (tmp_path / "moss.md").write_text("---\nyear: 1958\n---\n# Moss\nMoss grows in the shade.\n")
  (tmp_path / "oak.txt").write_text("An oak is tall.\n")
  output, errors = run(
    tmp_path,
    "kb create kb moss.md",
    "kb add kb oak.txt",
    "kb search kb shade --k=1",
    'kb search kb tall --where={"year":{"exists":false}}',
    "kb delete kb oak.txt",
    "kb compact kb --purge",
    "pretrain --help",
    "examples",
  )
  assert output.splitlines().count("0") == 8 and "Moss grows in the shade." in output
  assert not errors


def test_what_needs_an_extra_names_it(tmp_path):
  questions = (f'{{"question": "shade {n}", "answer": "moss"}}\n' for n in range(200))
  (tmp_path / "q.jsonl").write_text("".join(questions))
  (tmp_path / "moss.txt").write_text("Moss grows in the shade.\n")
  output, errors = run(
    tmp_path,
    "kb create kb moss.txt",
    "kb train kb q.jsonl",
    "kb serve kb",
    "kb sync kb moss.txt --watch",
    "build_index --checkpoints=c --passages=p --index=i",
    "prepare_corpus --input=q.jsonl --output=out --vocabulary=.",
  )
  assert [line for line in output.splitlines() if line in "01"] == ["0", *"11111"]
  named = [line.partition("'.[")[2].partition("]")[0] for line in errors.splitlines()]
  assert named == ["encoder", "serve", "watch", "train", "train"]


@pytest.mark.parametrize("is_checkout", [True, False])
def test_the_command_suits_a_checkout_and_a_wheel(tmp_path, monkeypatch, is_checkout):
  monkeypatch.setattr(extras, "_CHECKOUT", ROOT if is_checkout else tmp_path)
  command = extras.how_to_install("serve")
  assert (
    command
    == ("pip install -e '.[serve]' in the checkout", "pip install 'realm_jax[serve]'")[
      not is_checkout
    ]
  )


def test_every_extra_that_a_message_names_exists():
  with mock.patch("setuptools.setup") as setup:
    runpy.run_path(str(ROOT / "setup.py"))
  assert extras._LIBRARIES.keys() <= setup.call_args.kwargs["extras_require"].keys()
