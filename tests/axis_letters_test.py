"""The axis letters of array names, such as `scores_BxK`, are all in one glossary."""

import ast
import pathlib
import re

from realm_jax.devices import datatypes

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOSSARY = re.findall(r"^  ([A-Z])  \S", datatypes.__doc__, re.MULTILINE)
_SUFFIX = re.compile(r".*[a-z0-9]_([A-Z]|[A-Z0-9](?:x[A-Z0-9])+)")


def axis_letters(source):
  """Returns the letters in the suffixes of names that some code binds or reads."""
  nodes = list(ast.walk(ast.parse(source)))
  names = {getattr(node, field, "") for node in nodes for field in ("id", "attr", "arg")}
  suffixes = [match[1] for match in map(_SUFFIX.fullmatch, filter(None, names)) if match]
  return {letter for suffix in suffixes for letter in suffix.split("x") if letter.isalpha()}


def test_every_letter_has_one_meaning():
  assert len(set(GLOSSARY)) == len(GLOSSARY) > 10


def test_every_letter_in_use_is_in_the_glossary():
  used = {
    letter
    for folder in ("realm_jax", "tasks")
    for path in (ROOT / folder).rglob("*.py")
    for letter in axis_letters(path.read_text("utf-8"))
  }
  assert used <= set(GLOSSARY)
