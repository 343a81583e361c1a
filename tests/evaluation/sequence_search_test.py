import re

import numpy as np
import pytest

from realm_jax.evaluation import sequence_search
from realm_jax.evaluation.sequence_search import SequenceSearch, fold, required_literals


def slow_search(sequences, values):
  return {
    (start, number)
    for number, sequence in enumerate(sequences)
    for start in range(len(values) - len(sequence) + 1)
    if tuple(values[start : start + len(sequence)]) == sequence
  }


@pytest.mark.parametrize(("alphabet_size", "filter_bits"), [(2, 22), (5, 1), (30_000, 22)])
def test_all_occurrences_are_found(monkeypatch, alphabet_size, filter_bits):
  monkeypatch.setattr(sequence_search, "_FILTER_BITS", filter_bits)
  random = np.random.default_rng(alphabet_size)
  symbols = [0, 1, alphabet_size - 1]
  sequences = sorted(
    {tuple(random.choice(symbols, size).tolist()) for size in random.integers(1, 6, 40)}
  )
  values = random.choice(symbols, 500).astype(np.uint16)
  positions, numbers = SequenceSearch(sequences, alphabet_size=alphabet_size).find(values)
  found = list(zip(positions.tolist(), numbers.tolist(), strict=True))
  assert len(found) == len(set(found))
  assert set(found) == slow_search(sequences, values)


@pytest.mark.parametrize(
  ("pattern", "literals"),
  [
    ("Long Island|New\\s?York", {"long island", "york"}),
    ("Sept?(ember)?|Feb(ruary)?", {"sep", "feb"}),
    ("189[6789]", {"189"}),
    (r"\bred", {"red"}),
    (".*Eureka.*", {"eureka"}),
    (r"98(4|6)\s?-?\s?f(ee|oo)?t", {"98"}),
    ("((Watson|Crick).*){2}", {"watson", "crick"}),
    ("((Watson|Crick).*){0,2}", None),
    (r"\d+", None),
    ("abc|[0-9]", None),
    ("Zürich", {"rich"}),
    ("", None),
  ],
)
def test_literals_of_patterns(pattern, literals):
  assert required_literals(pattern) == literals


@pytest.mark.parametrize(
  "pattern", ["Kiss", "MINSK", "istanbul", "big(ger)? (fish|birds)", "s{2}k"]
)
@pytest.mark.parametrize(
  "text", ["kiſs", "\u212aISS", "mınsk", "İSTANBUL", "bIg fıſh", "BIGGER birdſ", "SS\u212a", "\xdf"]
)
def test_a_match_always_holds_a_literal(pattern, text):
  if re.search(pattern, text, re.IGNORECASE):
    assert any(literal in fold(text) for literal in required_literals(pattern))
