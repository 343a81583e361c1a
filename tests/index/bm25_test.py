"""BM25: scores, and the best texts, which are those of scoring every text, after any history.

  ORACLE_QUESTIONS=1000 python -m pytest -k all_scores tests/index/bm25_test.py

asks a thousand questions of hundreds, thousands and ten thousands of texts.
"""

import os
import re

import numpy as np
import pytest

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID
from realm_jax.index.words import bm25 as bm25_module
from realm_jax.index.words.bm25 import Bm25Config, Bm25Retriever
from realm_jax.index.words.postings import Postings, prefixes_of
from tests.index import dense_bm25

TEXTS = ["the cat sat", "dogs bark at the cat", "a dog barked loudly", "rivers flow", "cat cat cat"]


def bm25(texts, *, languages=("en",), **settings):
  return Bm25Retriever([Postings.build(texts, languages=languages)], config=Bm25Config(**settings))


def test_rare_words_and_short_passages_come_first():
  retriever = bm25(TEXTS)
  found = retriever.retrieve(["Which rivers?", "who barks?", "cat"], k=3)
  assert found.ids_BxK.dtype == np.int32
  assert found.ids_BxK[0, 0] == 3
  assert set(found.ids_BxK[1, :2].tolist()) == {1, 2}
  assert found.ids_BxK[2].tolist() == [4, 0, 1]
  assert (found.scores_BxK[:, :-1] >= found.scores_BxK[:, 1:]).all()
  assert retriever.num_passages == 5


def test_passages_without_a_word_of_the_question_are_not_found():
  found = bm25(TEXTS).retrieve(["cat", "xyz", ""], k=7)
  assert found.ids_BxK.shape == (3, 7)
  assert (found.ids_BxK >= 0).sum(axis=1).tolist() == [3, 0, 0]
  assert (found.ids_BxK[:, 3:] == MISSING_PASSAGE_ID).all()
  assert np.isneginf(found.scores_BxK[:, 3:]).all()


def test_a_mask_is_no_word():
  found = bm25([*TEXTS, "a mask"]).retrieve(["who [MASK] loudly?"], k=2)
  assert found.ids_BxK[0].tolist() == [2, MISSING_PASSAGE_ID]


def test_scores_of_single_terms_are_those_of_bm25s():
  bm25s = pytest.importorskip("bm25s", reason="compares with bm25s")
  import Stemmer

  stem = Stemmer.Stemmer("english")
  retriever = bm25(TEXTS, k1=0.9, b=0.4, pair_weight=0)
  index = bm25s.BM25(k1=0.9, b=0.4)
  index.index(bm25s.tokenize(TEXTS, stemmer=stem, show_progress=False), show_progress=False)
  for question in ("cat", "dogs cat cat", "loudly barked river dog"):
    (words,) = bm25s.tokenize([question], stemmer=stem, return_ids=False, show_progress=False)
    np.testing.assert_allclose(retriever.scores(question), index.get_scores(words), rtol=1e-6)


def test_a_pair_scores_like_a_term_of_its_own_weight():
  texts = ["new york city", "york new city", "new york new york", "city"]
  pairs = bm25(texts, pair_weight=0.5, b=0).scores("new york")
  single = bm25(texts, pair_weight=0, b=0).scores("new york")
  as_term = bm25(["pair", "", "pair pair", ""], pair_weight=0, b=0).scores("pair")
  np.testing.assert_allclose(pairs - single, 0.5 * as_term, rtol=1e-6)


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.5), (1000.0, 1.0), (0.0, 0.0), (1.2, 1.0)])
def test_scores_are_right_for_all_settings_that_are_taken(k1, b, monkeypatch):
  monkeypatch.setattr(bm25_module, "_ROWS_AT_ONCE", 16)
  texts = [" ".join(w) for w in np.random.default_rng(0).choice(["elm", "oak", "ash"], (99, 2))]
  retriever = bm25([*texts, ""], k1=k1, b=b, pair_weight=0)
  expected = dense_bm25.word_scores(
    [*texts, ""], "elm oak", languages=("en",), k1=k1, b=b, pair_weight=0
  )
  rows, scores = retriever.best("elm oak", 5)
  assert np.isfinite(expected).all()
  np.testing.assert_allclose(retriever.scores("elm oak"), expected, rtol=1e-5)
  np.testing.assert_array_equal(rows, np.flatnonzero(expected >= np.sort(expected)[-5]))
  np.testing.assert_allclose(scores, expected[rows], rtol=1e-5)


@pytest.mark.parametrize(
  ("name", "value"),
  [("k1", -1), ("k1", np.inf), ("k1", np.nan), ("k1", 1e30), ("b", -0.1), ("b", 1.1), ("b", np.nan)]
  + [("pair_weight", -1), ("pair_weight", np.nan), ("pair_weight", np.inf)],
)
def test_settings_that_no_score_comes_of_are_refused(name, value):
  with pytest.raises(ValueError, match=re.escape(f"{name}={value}; give ")):
    Bm25Config(**{name: value})


def test_question_words_are_dropped_unless_there_are_no_others():
  texts = ["who has many", "rivers"]
  assert bm25(texts).scores("Who has many rivers?")[0] == 0
  assert bm25(texts).scores("Who has many?")[0] > 0


def test_edited_texts_score_as_if_they_were_indexed():
  fresh = bm25([TEXTS[0], TEXTS[2], TEXTS[3], "dogs", "a cat"])
  given = {"hidden": [1, 4], "written": {1: "dogs", 9: "a cat"}}
  for question in ("cat", "a dog that barks", "rivers"):
    found = bm25(TEXTS).edited(**given).retrieve([question], k=5)
    ids, scores = found.ids_BxK[0], found.scores_BxK[0]
    expected = dict(zip((0, 2, 3, 1, 9), fresh.scores(question).tolist(), strict=True))
    kept = {i: score for i, score in expected.items() if score}
    assert dict(zip(ids[ids >= 0].tolist(), scores[ids >= 0].tolist(), strict=True)) == kept


def test_the_languages_decide_what_a_word_is():
  texts = ["Die Häuser der Stadt", "Ein altes Schiff", "超级碗在圣克拉拉举行"]
  ask = {"questions": ["Haus", "超级碗在哪里举行？"], "k": 1}
  assert bm25(texts, languages=["de"]).retrieve(**ask).ids_BxK[:, 0].tolist() == [0, 2]
  assert bm25(texts).retrieve(**ask).ids_BxK[:, 0].tolist() == [MISSING_PASSAGE_ID, 2]


def test_a_question_is_asked_in_the_language_of_each_text():
  texts = {"en": "the tokenizer handles pages", "de": "alte Häuser", "ru": "столицей страны"}
  segments = [Postings.build([text], languages=[tag]) for tag, text in texts.items()]
  merged = Postings.merge(segments, live=np.ones(3, bool))
  assert merged.languages == ("de", "en", "ru")
  for retriever in (Bm25Retriever(segments), Bm25Retriever([merged])):
    for row, questions in enumerate(("tokenizer pages handling", "haus häuser", "столица страна")):
      for question in questions.split():
        rows, scores = retriever.best(question, 3)
        assert rows.tolist() == [row] and scores > 0, question


def test_words_that_say_nothing_are_ignored_in_every_language():
  texts = ["moss grows in the shade", "Das Album heißt The Which", "Moos wächst langsam"]
  tags = ["en", "de", "de"]
  retriever = Bm25Retriever(
    [Postings.build([text], languages=[tag]) for text, tag in zip(texts, tags, strict=True)]
  )
  question = "Which of the plants that were in the shade have grown over the years?"
  assert retriever.best(question, 3)[0].tolist() == [0]
  assert retriever.best("The Which", 3)[0].tolist() == [1]


def test_frequent_words_of_one_language_stay_frequent_among_others():
  german = [f"was ist das und der {word} ist hier" for word in ("Hund", "Fuchs", "Igel", "Dachs")]
  german.append("Dachs und Igel schlafen")
  chinese = [f"这座城市建于{i}世纪，人们都来参观。" for i in range(60)]
  question = ["Was ist der Dachs und das?"]
  alone = bm25(german, languages=["de"]).retrieve(question, k=5)
  mixed = bm25([*german, *chinese], languages=["de", "zh"]).retrieve(question, k=5)
  assert mixed.ids_BxK.tolist() == alone.ids_BxK.tolist()
  weights = mixed.scores_BxK / mixed.scores_BxK.max(), alone.scores_BxK / alone.scores_BxK.max()
  np.testing.assert_allclose(*weights, atol=0.1)


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
  monkeypatch.setattr(bm25_module, "_ROWS_AT_ONCE", rows_at_once)
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
        also = of_live[:: max(1, len(of_live) // 3)]
        at, scores = retriever.best(question, k, also=also)
        assert {*also.tolist()} <= {*at.tolist()} and (np.diff(at) > 0).all()
        np.testing.assert_array_equal(scores, retriever.scores(question)[at])


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
    assert bm25_module.kth_best(scores, k) == np.sort(scores)[-k]
