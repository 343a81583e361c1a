import numpy as np
import pytest

from realm_jax.evaluation import sequence_search
from realm_jax.evaluation.sequence_search import SequenceSearch


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
