"""Finds many sequences at once in a long array, with a trie of numpy arrays.

Regular expressions are slow to try on millions of passages. Searching for the literals that every
match contains leaves few passages to try.
"""

import importlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

# The standard library has no public parser; this one is unchanged since 3.11.
constants = importlib.import_module("re._constants")
parser = importlib.import_module("re._parser")

_FILTER_BITS = 22
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
# Characters that IGNORECASE equates with ASCII letters, but `lower` does not map to them.
_FOLDED = (("İ", "i"), ("ı", "i"), ("ſ", "s"))


class SequenceSearch:
  """Searches for a fixed set of sequences of symbols.

  Args:
    sequences: Distinct, non-empty sequences of symbols from 0 to `alphabet_size` - 1.
    alphabet_size: Number of symbols, A.
  """

  def __init__(self, sequences: Iterable[Sequence[int]], *, alphabet_size: int):
    self._alphabet_size = alphabet_size
    edges: list[dict[int, int]] = []  # of each depth: node * A + symbol -> node of the next depth
    ends: list[dict[int, int]] = []  # of each depth: node -> number of the sequence
    for number, sequence in enumerate(sequences):
      node = 0
      for depth, symbol in enumerate(sequence):
        if depth == len(edges):
          edges.append({})
          ends.append({})
        node = edges[depth].setdefault(node * alphabet_size + int(symbol), len(edges[depth]))
      ends[len(sequence) - 1][node] = number
    self._levels = [_Level(e, n) for e, n in zip(edges, ends, strict=True)]

  def find(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns start positions in `values` and sequence numbers of all occurrences."""
    positions = np.arange(len(values))
    nodes = np.zeros(len(values), np.int64)
    found = []
    for depth, level in enumerate(self._levels):
      inside = positions + depth < len(values)
      positions, nodes = positions[inside], nodes[inside]
      keys = nodes * self._alphabet_size + values[positions + depth].astype(np.int64)
      alive, nodes = level.follow(keys)
      positions = positions[alive]
      numbers = level.numbers[nodes]
      ended = numbers >= 0
      found.append((positions[ended], numbers[ended]))
      if not len(positions):
        break
    if not found:
      return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([p for p, _ in found]), np.concatenate([n for _, n in found])


class _Level:
  """The edges of one depth as a sorted table behind a filter, because most keys are not edges."""

  def __init__(self, edges: dict[int, int], ends: dict[int, int]):
    keys = np.fromiter(edges.keys(), np.int64, len(edges))
    order = np.argsort(keys)
    self._keys = keys[order]
    self._nodes = np.fromiter(edges.values(), np.int64, len(edges))[order]
    self._filter = np.zeros(1 << _FILTER_BITS, bool)
    self._filter[self._hashed(self._keys)] = True
    self.numbers = np.full(len(edges), -1, np.int64)
    for node, number in ends.items():
      self.numbers[node] = number

  def _hashed(self, keys: np.ndarray) -> np.ndarray:
    mixed = keys.astype(np.uint64) * _MULTIPLIER
    return (mixed >> np.uint64(64 - _FILTER_BITS)).astype(np.int64)

  def follow(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which keys are edges, and the nodes they lead to."""
    candidates = np.flatnonzero(self._filter[self._hashed(keys)])
    wanted = keys[candidates]
    indices = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
    right = self._keys[indices] == wanted
    return candidates[right], self._nodes[indices[right]]


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
