"""Finds literals that a text must contain for a regular expression to match it.

Searching millions of passages for thousands of expressions is slow; searching them for the literals
that every match contains is fast, and leaves few passages to try.
"""

import importlib
import re

# The standard library has no public parser; this one is unchanged since 3.11.
constants = importlib.import_module("re._constants")
parser = importlib.import_module("re._parser")

# Characters that IGNORECASE equates with ASCII letters, but `lower` does not map to them.
_FOLDED = (("İ", "i"), ("ı", "i"), ("ſ", "s"))


def fold(text: str) -> str:
  """Folds case, so that every case-insensitive match of a literal becomes that literal."""
  for character, ascii_character in _FOLDED:
    text = text.replace(character, ascii_character)
  return text.lower()


def required_literals(pattern: str) -> frozenset[str] | None:
  """Returns ASCII literals such that each folded match of `pattern` has one; None if unknown."""
  return _of_sequence(parser.parse(pattern, re.IGNORECASE | re.MULTILINE))


def _of_sequence(items) -> frozenset[str] | None:
  choices = []
  run = ""
  for operation, argument in items:
    if operation is constants.LITERAL and argument < 128:
      run += chr(argument).lower()
      continue
    choices.append(_of_run(run))
    run = ""
    choices.append(_of_item(operation, argument))
  choices.append(_of_run(run))
  # Any of them will do; the one with the longest shortest literal is the rarest.
  return max(
    (choice for choice in choices if choice is not None),
    key=lambda literals: (min(map(len, literals)), -len(literals)),
    default=None,
  )


def _of_run(run: str) -> frozenset[str] | None:
  return frozenset({run}) if run else None


def _of_item(operation, argument) -> frozenset[str] | None:
  if operation is constants.SUBPATTERN:
    return _of_sequence(argument[-1])
  if operation is constants.BRANCH:
    branches = [_of_sequence(branch) for branch in argument[1]]
    found = [literals for literals in branches if literals is not None]
    return frozenset().union(*found) if len(found) == len(branches) else None
  if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
    least, _, repeated = argument
    return _of_sequence(repeated) if least else None
  return None
