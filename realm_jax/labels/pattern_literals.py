"""Which words a text must hold before a regular expression can match it.

Searching millions of passages for thousands of expressions is slow; searching them for the literals
that the expressions cannot do without is fast, and leaves few passages to try.
"""

import importlib
import re

# The standard library has no public parser; this one has been there, unchanged, since 3.11.
constants = importlib.import_module("re._constants")
parser = importlib.import_module("re._parser")

# What Python's IGNORECASE takes for ASCII letters and `lower` does not turn to them.
_FOLDED = (("İ", "i"), ("ı", "i"), ("ſ", "s"))


def fold(text: str) -> str:
  """Returns a text in which every match of a literal, whatever its case, is that literal."""
  for character, ascii_character in _FOLDED:
    text = text.replace(character, ascii_character)
  return text.lower()


def required_literals(pattern: str) -> frozenset[str] | None:
  """Returns ASCII literals of which every match of `pattern`, folded, holds one; None if unknown.

  Raises:
    re.error: if the pattern is invalid.
  """
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
  # Any of them will do: the one whose shortest literal is longest is met least often.
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
