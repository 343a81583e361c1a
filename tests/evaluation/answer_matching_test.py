import itertools
import re

import numpy as np
import pytest

from realm_jax.data.answers import contains
from realm_jax.data.questions import Question
from realm_jax.evaluation import answer_matching
from realm_jax.evaluation.answer_matching import (
  AnswerMatcher,
  find_labels,
  match_answers,
  warn_of_wide_answers,
)
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer(
  [*SPECIAL_TOKENS, *"the cat cats ##fish sat on mat . , 19 ##69 1969 july cafe u s in a".split()]
)
TEXTS = (
  "The cat sat on the mat.",
  "Catfish sat. The café, cat.",
  "In July 1969 the U.S. cat sat.",
  "日本 cat",  # no wordpieces of the vocabulary but "cat"
  "In 1919 a cat.",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  return write_store(tmp_path_factory.mktemp("store"), TEXTS, tokenizer=TOKENIZER)


def question(*answers, regex=False):
  return Question(id="q", text="?", answers=answers, regex=regex)


def found(store, *answers, regex=False):
  """Returns the rows that hold an answer, and each row's spans as wordpieces."""
  matcher = match_answers([question(*answers, regex=regex)], store=store)
  (holds,) = matcher.contains(np.array([0]), np.arange(len(store))[np.newaxis])
  spans = {
    row: [tuple(span) for span in matcher.spans(0, row).tolist()]
    for row in range(len(store))
    if len(matcher.spans(0, row))
  }
  assert matcher.unanswerable == (not holds.any())
  return np.flatnonzero(holds).tolist(), spans


def test_wordpieces_are_found_at_the_borders_of_words(store):
  assert found(store, "cat") == (
    [0, 1, 2, 3, 4],
    {0: [(1, 1)], 1: [(7, 7)], 2: [(8, 8)], 3: [(2, 2)], 4: [(3, 3)]},
  )
  assert found(store, "The CAT") == ([0], {0: [(0, 1)]})
  assert found(store, "mat.", "sat on") == ([0], {0: [(2, 3), (5, 6)]})
  assert found(store, "CAFE") == ([1], {1: [(5, 5)]})
  assert found(store, "U.S.") == ([2], {2: [(4, 7)]})
  assert found(store, "19") == ([], {})


def test_regular_expressions_are_mapped_to_wordpieces(store):
  assert found(store, r"july\s*19\d\d|\bmat\b", regex=True) == ([0, 2], {0: [(5, 5)], 2: [(1, 2)]})
  assert found(store, "cat", regex=True)[1][1] == [(0, 0), (7, 7)]
  assert found(store, r"\d{4}", regex=True)[0] == [2, 4]  # no literal to look for
  assert found(store, ".*1969.*", regex=True) == ([2], {2: [(2, 2)]})
  assert found(store, "x*", regex=True) == ([], {})


def test_answers_that_the_vocabulary_lacks_are_found_in_the_text(store):
  assert found(store, "日本") == ([3], {3: [(0, 1)]})
  assert found(store, "本") == (
    [3],
    {3: [(1, 1)]},
  )  # a word of its own, as for a vocabulary with it


def test_without_spaces_an_answer_may_stand_anywhere(tmp_path):
  pieces = ["タ", *(f"##{character}" for character in "ワーです")]
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *pieces], strip_accents=False)
  store = write_store(tmp_path, ["タワーです", "タワ"], tokenizer=tokenizer)
  matcher = match_answers([question("タワー")], store=store)
  assert matcher.contains(np.array([0]), np.array([[0, 1]])).tolist() == [[True, False]]
  assert matcher.spans(0, 0).tolist() == [[0, 2]]


@pytest.mark.parametrize("regex", [False, True])
def test_no_answer_runs_on_into_the_next_passage(tmp_path, regex):
  store = write_store(tmp_path, ["the cat", "sat on"], tokenizer=TOKENIZER, max_passage_length=2)
  assert found(store, "cat sat", regex=regex) == ([], {})
  assert found(store, "sat on", regex=regex) == ([1], {1: [(0, 1)]})


def test_a_label_is_a_span_found_slowly(tmp_path, monkeypatch):
  monkeypatch.setattr(answer_matching, "_ROWS_AT_ONCE", 7)
  monkeypatch.setattr(answer_matching, "_OCCURRENCES_AT_ONCE", 5)
  random = np.random.default_rng(0)
  words = "the cat cats catfish sat . , 1969 july café in a xyz".split()
  texts = [" ".join(random.choice(words, size)) for size in random.integers(1, 12, 60)]
  store = write_store(tmp_path, texts, tokenizer=TOKENIZER)
  answers = [" ".join(random.choice(words, size)) for size in random.integers(1, 4, 50)]
  questions = [question(*answers[i : i + 2]) for i in range(0, 50, 2)]
  questions += [question(re.escape(answer), regex=True) for answer in answers]
  matcher = match_answers(questions, store=store)
  holds = matcher.contains(np.arange(len(questions)), np.tile(np.arange(60), (len(questions), 1)))
  for index, asked in enumerate(questions):
    for row, text in enumerate(texts):
      if asked.regex:
        expected = any(re.search(a, text, re.IGNORECASE) for a in asked.answers)
      else:
        expected = any(f" {a} " in f" {text} " for a in asked.answers)
        assert expected == bool(len(matcher.spans(index, row)))
      assert holds[index, row] == expected, (asked, text)
  assert matcher.unanswerable == (~holds.any(axis=1)).sum()


@pytest.mark.parametrize("strip_accents", [True, False])
def test_a_label_is_an_answer_that_the_text_has(tmp_path, strip_accents):
  random = np.random.default_rng(1)
  parts = "1185 1226 ( ) – — - ' ’ . km ² é e E ß ss ı İ ﬁ fi € $ _ \u00ad \u200b \u0301".split(" ")
  parts += [*"がか黑豹ター", "ที่", "ท", "हि", *" " * 12]
  characters = sorted({c for part in parts if part for c in part.lower()} - {" "})
  pieces = [p for c in characters for p in (c, f"##{c}") if c not in "²豹"]
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *pieces], strip_accents=strip_accents)
  texts = ["".join(random.choice(parts, 14)) for _ in range(200)]
  answers = ["".join(random.choice(parts, size)) for size in random.integers(1, 4, 100)]
  store = write_store(tmp_path, texts, max_passage_length=64, tokenizer=tokenizer)
  asked = [question(answer) for answer in answers]
  matcher = match_answers(asked, store=store)
  holds = matcher.contains(np.arange(100), np.tile(np.arange(200), (100, 1)))
  differ = [
    (answer, text)
    for answer, holds_N in zip(answers, holds, strict=True)
    for text, found in zip(texts, holds_N, strict=True)
    if found != contains(text, answer)
  ]
  assert holds.sum() > 500 and not differ


def test_labels_come_back_from_arrays(store):
  asked = [question("cat", "mat"), question("dog"), question("19.9", regex=True), question("cat")]
  before = match_answers(asked, store=store)
  arrays = before.arrays()
  assert {array.dtype.name for array in arrays.values()} == {"int32"}
  again = AnswerMatcher.from_arrays(arrays)
  ids_BxR = np.tile(np.arange(len(store)), (4, 1))
  holds_BxR = again.contains(np.arange(4), ids_BxR)
  assert holds_BxR[0].any() and holds_BxR[2].any()
  np.testing.assert_array_equal(holds_BxR, before.contains(np.arange(4), ids_BxR))
  for index, row in itertools.product(range(4), range(len(store))):
    np.testing.assert_array_equal(again.spans(index, row), before.spans(index, row))
  assert again.unanswerable == before.unanswerable == 1
  with pytest.raises(
    ValueError, match=r"not labels of questions: .*3 rows in groups of \d+ in all"
  ):
    AnswerMatcher.from_arrays({**arrays, "occurrences": arrays["occurrences"][:3]})
  with pytest.raises(ValueError, match=r"not labels of questions: KeyError\('occurrences'\)"):
    AnswerMatcher.from_arrays({})


LETTERS = WordPieceTokenizer([*SPECIAL_TOKENS, *"a b c d e f ##f".split()])


@pytest.fixture
def letters(tmp_path):
  return write_store(tmp_path, ["A b c d.", "E f ff."], tokenizer=LETTERS)


def asked(*questions):
  return [
    Question(id=str(number), text="f [MASK] f", answers=answers)
    for number, answers in enumerate(questions)
  ]


@pytest.mark.parametrize(
  ("answers", "told"),
  [
    ([("a",), ("b c",), ("zzz",)], None),
    ([("a b c",), ("b",)], "1 of 2 questions have only answers wider than max_span_width=2, such"),
    # Wordpieces count, not words; one that is narrow enough will do.
    ([("E f ff",), ("a b c", "d"), ("e f", "a b c")], "'E f ff' (4 wordpieces)"),
    ([("A b c",), ("a b c d",)], "2 of 2 questions"),
    ([("A b c",), ("a b c d",)], "max_span_width=4 holds all"),
  ],
)
def test_answers_wider_than_the_reader_gives_are_counted(answers, told, letters, caplog):
  questions = asked(*answers)
  labels = find_labels(questions, file="q.jsonl", store=letters, query_length=8)
  caplog.clear()
  warn_of_wide_answers(questions, labels, max_span_width=2)
  assert told in caplog.text if told else not caplog.text


@pytest.mark.parametrize(("query_length", "longer"), [(5, 0), (4, 1)])
def test_a_mask_counts_as_one_wordpiece_of_a_question(query_length, longer, letters, caplog):
  with caplog.at_level("INFO"):
    find_labels(asked(("a",)), file="q.jsonl", store=letters, query_length=query_length)
  assert f"{longer} are longer than query_length={query_length}" in caplog.text
