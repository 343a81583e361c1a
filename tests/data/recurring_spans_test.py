import numpy as np
import pytest

from realm_jax.data import recurring_spans


def test_the_longest_spans_that_several_passages_hold_with_their_places():
  words = ["a b c d e".split(), "x a b c".split(), "b c y d e y".split(), "z d".split()]
  assert recurring_spans.recurring_spans(words) == {
    ("a", "b", "c"): [(0, 0), (1, 1)],
    ("b", "c"): [(0, 1), (1, 2), (2, 0)],  # the last one does not follow "a"
    ("d", "e"): [(0, 3), (2, 3)],
  }


def test_spans_equal_brute_force():
  random = np.random.default_rng(0)
  words = [[str(w) for w in random.integers(0, 3, random.integers(0, 30))] for _ in range(4)]
  places = {}
  for i, found in enumerate(words):
    for k in range(len(found)):
      for n in range(2, 11):
        if k + n <= len(found):
          places.setdefault(tuple(found[k : k + n]), []).append((i, k))
  recurring = {span: at for span, at in places.items() if len({i for i, _ in at}) > 1}
  starts = {(len(span), place) for span, at in recurring.items() for place in at}
  expected = {
    span: at
    for span, at in recurring.items()
    if any(
      (len(span) + 1, (i, k)) not in starts and (len(span) + 1, (i, k - 1)) not in starts
      for i, k in at
    )
  }
  assert len(expected) >= 20
  assert recurring_spans.recurring_spans(words) == expected


def test_documents_are_passages_of_one_title(store):
  np.testing.assert_array_equal(recurring_spans.documents_of(store), [[0, 3], [3, 5]])


@pytest.fixture
def pairs(store):
  """A few hundred pairs; each seed draws different windows."""
  finder = recurring_spans.RecurringSpans(store)
  (chunk,) = finder.chunks()
  return [pair for seed in range(100) for pair in finder.find(chunk, np.random.default_rng(seed))]


def test_another_passage_of_the_document_holds_the_span_and_the_query_half_the_time(store, pairs):
  spans = ("charles babbage", "analytical engine")
  pieces = finder_pieces(store)
  queries = [" ".join(pieces[i] for i in pair.query) for pair in pairs]
  texts = [store.text(row).lower() for row in range(len(store))]
  for span in spans:
    holders = {row for row, text in enumerate(texts) if span in text}
    assert holders == {0, 1}
  assert len(pairs) == 2 * 100
  assert {tuple(pair.right) for pair in pairs} == {(0,), (1,)}
  assert {tuple(pair.wrong) for pair in pairs} == {(2,)}
  kept = np.mean([any(span in query for span in spans) for query in queries])
  # The window may hold the other span.
  assert 0.4 < kept < 0.9
  for query, pair in zip(queries, pairs, strict=True):
    own = texts[1 - pair.right[0]].replace(".", " ").split()
    assert set(query.split()) <= set(own) | {"."}


def finder_pieces(store):
  with open(f"{store.directory}/vocabulary/vocab.txt", encoding="utf-8") as file:
    return file.read().split("\n")


def test_common_words_neither_begin_nor_end_a_span(store, monkeypatch):
  monkeypatch.setattr(recurring_spans, "_COMMON_NUMBER", 1)
  assert {"babbage", "london", "it"} <= recurring_spans.common_words(
    store, recurring_spans.reader(["en"])
  )
  finder = recurring_spans.RecurringSpans(store)
  (chunk,) = finder.chunks()
  assert finder.find(chunk, np.random.default_rng(0)) == []
