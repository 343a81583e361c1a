"""The best texts are those of scoring every text, to the last bit, after any history.

  ORACLE_QUESTIONS=1000 python -m pytest -k all_scores tests/index/bm25_best_test.py

asks a thousand questions of hundreds, thousands and ten thousands of texts.
"""

import os

import numpy as np
import pytest

from realm_jax.index import bm25
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.index.postings import Postings, prefixes_of
from tests.index import dense_bm25

WORDS = {
  "en": "cat dog bark river flow loud sit new york city tail the of a is",
  "de": "Hund Fuchs Igel und der die das Stadt Fluss neu York ist schläft",
  "fr": "chat chien rivière la le une ville neuve dort est grand petit",
  "ru": "кот собака река город новый и в на спит большой",
  "zh": "黑 豹 队 的 城 市 河 流 新 大",
  "hi": "बिल्ली कुत्ता नदी शहर नया बड़ा और है में",
}
NUMBERS = [str(number) for number in range(100)]  # as rare words
# Of each size, over all histories.
QUESTIONS = int(os.environ.get("ORACLE_QUESTIONS", "90"))
SIZES = (300, 3000, 30_000) if "ORACLE_QUESTIONS" in os.environ else (6, 150, 700)
BLOCKS = (1, 40, 2**13)  # rows that are scored at once
HISTORIES = [("en",), ("de",), ("zh",), ("fr", "ru"), tuple(WORDS)]


def random_texts(draw, languages, count):
  """Texts of few words, so that many are equal, some frequent, and some only of one word."""
  texts = []
  for _ in range(count):
    words = WORDS[languages[draw.integers(len(languages))]].split() + NUMBERS
    weights = 1 / np.arange(1, len(words) + 1) ** 1.5
    length = int(min(draw.geometric(0.12), 60))
    texts.append(" ".join(draw.choice(words, size=length, p=weights / weights.sum())))
  return texts


@pytest.mark.parametrize("rows_at_once", BLOCKS)
@pytest.mark.parametrize("languages", HISTORIES, ids="-".join)
def test_the_best_are_those_of_all_scores(languages, rows_at_once, monkeypatch):
  monkeypatch.setattr(bm25, "_ROWS_AT_ONCE", rows_at_once)
  draw = np.random.default_rng(len(languages) * 100 + rows_at_once)
  for size in SIZES:
    parts = [random_texts(draw, languages, n) for n in (size, draw.integers(1, 9), 1, 3)]
    texts = np.array(sum(parts, []))
    live = draw.random(len(texts)) < draw.choice([0.5, 0.97, 1])
    live[0] = True
    segments = [Postings.build(part, languages=languages) for part in parts]
    merged = Postings.merge(segments[1:], live=live[size:])
    after_merge = np.append(live[:size], np.ones(len(merged), bool))
    retrievers = [
      Bm25Retriever(segments, live=live),
      Bm25Retriever([segments[0], merged], live=after_merge),
      Bm25Retriever([Postings.build(texts[live], languages=languages)]),
    ]
    rows = [*map(np.flatnonzero, (live, after_merge)), np.arange(live.sum())]  # of live texts
    for question in random_texts(draw, languages, -(-QUESTIONS // len(HISTORIES) // len(BLOCKS))):
      expected = dense_bm25.word_scores(texts[live], question, languages=languages)
      k, wanted = draw.choice([1, 3, 10, 1000]), draw.random(len(expected)) < draw.choice([0.2, 1])
      found = np.flatnonzero(wanted & (expected > 0))
      if k < len(found):
        found = found[expected[found] >= np.sort(expected[found])[-k]]
      for retriever, of_live in zip(retrievers, rows, strict=True):
        matching = np.zeros(retriever.num_passages, bool)
        matching[of_live] = wanted
        given = {} if wanted.all() else {"matching": matching.__getitem__}
        at, scores = retriever.best(question, k, **given)
        assert at.tolist() == of_live[found].tolist()
        np.testing.assert_array_equal(scores, expected[found])
        np.testing.assert_array_equal(retriever.scores(question)[of_live], expected)


def test_terms_are_told_apart_however_they_begin():
  terms = ["a", "ab", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefgh\0", "z", "ä", "ab\0"]
  postings = Postings.build([])
  spelled = sorted(term.encode() for term in terms)
  postings.spelling = np.frombuffer(b"".join(spelled), np.uint8)
  postings.spelling_ends = np.cumsum([*map(len, spelled)])
  postings.prefixes = prefixes_of(spelled)
  assert postings.places(spelled, postings.prefixes) == [*range(len(spelled))]
  absent = [b"", b"abc", b"abcdefghii", b"zz"]
  assert postings.places(absent, prefixes_of(absent)) == [None] * 4


@pytest.mark.parametrize("size", [1, 255, 256, 257, 4000])
@pytest.mark.parametrize("values", [3, 1_000_000])
def test_the_kth_best_is_that_of_a_sorted_list(size, values):
  scores = np.random.default_rng(size).integers(-values, values, size).astype(np.float32)
  for k in {1, min(10, size), min(16, size), size}:
    assert bm25.kth_best(scores, k) == np.sort(scores)[-k]
