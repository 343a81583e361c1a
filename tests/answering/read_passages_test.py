"""Spans aggregated by words, against a loop."""

import numpy as np
import pytest

from realm_jax.answering.read_passages import by_words

LOWEST = np.finfo(np.float32).min


def test_spans_within_the_same_words_are_one():
  continues = np.array([False, True, False, True, True])  # two words: 0 to 1, 2 to 4
  logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
  for t in range(5):
    logits[t, 5 - t :] = LOWEST
  spans = by_words(logits, continues)
  best = {}
  word, first, last = (0, 0, 1, 1, 1), (0, 2), (1, 4)
  for t in range(5):
    for end in range(t, min(t + 3, 5)):
      key = first[word[t]], last[word[end]]
      best[key] = max(best.get(key, -np.inf), float(logits[t, end - t]))
  places = zip(spans.firsts_S.tolist(), spans.lasts_S.tolist(), strict=True)
  found = dict(zip(places, spans.log_probs_S, strict=True))
  total = np.log(np.exp(logits[logits > LOWEST].astype(np.float64)).sum())
  assert spans.log_total == pytest.approx(total)
  assert found == pytest.approx({key: value - total for key, value in best.items()})
