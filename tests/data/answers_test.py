import time

import pytest

from realm_jax.data import answers
from realm_jax.data.answers import exact_match, f1


@pytest.mark.parametrize(
  ("prediction", "answer", "official", "corrected"),
  [
    ("The  Beatles!", "beatles", True, True),
    ("a dog", "The dog", True, True),
    # Accents: decomposed by the official rule, not removed.
    ("café", "cafe", False, True),
    ("caf\u00e9", "cafe\u0301", True, True),
    # Unicode dashes and quotes are no ASCII punctuation.
    ("1914–1918", "1914-1918", False, True),
    ("“Hamlet”", '"Hamlet"', False, True),
    # Articles alone become nothing, and nothing equals nothing.
    ("the", "a", True, False),
    ("The The", "the", True, False),
    # The combining mark ends the word "a".
    ("á la carte", "a\u0301 la carte", True, True),
    # Answers rebuilt of tokens: punctuation leaves a space behind.
    ("U . S .", "U.S.", False, False),
    ("1,000", "1000", True, True),
    ("\u200bParis", "Paris", False, True),
    ("Paris \u200b", "Paris", False, True),
    ("\u200eThe Beatles", "The Beatles", False, True),
    ("Beatles \u00ad!", "\ufeff The\u2060 Beatles", False, True),
    ("Straße", "STRASSE", False, True),
  ],
)
def test_hard_cases(prediction, answer, official, corrected):
  assert exact_match(prediction, ["nothing", answer], normalization="official") is official
  assert exact_match(prediction, ["nothing", answer], normalization="corrected") is corrected


@pytest.mark.parametrize(
  ("prediction", "pattern", "official", "corrected"),
  [
    ("1990", "1990", True, True),
    ("1990 foo", "1990", True, False),  # the official rule looks for a prefix
    ("in 1990", "1990", False, False),
    ("(1990).", "1990", False, True),
    ("The NEW york", r"New\s?York", False, True),
    ("newyork", r"New\s?York", True, True),
    ("first\nsecond", "first$", True, False),
    ("September", "Sept?(ember)?|Feb(ruary)?", True, True),
  ],
)
def test_regular_expressions(prediction, pattern, official, corrected):
  answers = ["never", pattern]
  assert exact_match(prediction, answers, regex=True, normalization="official") is official
  assert exact_match(prediction, answers, regex=True, normalization="corrected") is corrected


def test_a_text_has_answers_in_whole_tokens_and_patterns_anywhere():
  text = "Saladin (1185–1226)"
  assert answers.occurs(text, ["1184", "1185"]) and not answers.occurs(text, ["118"])
  assert answers.occurs(text, ["x", r"SAL.*\(118"], regex=True)
  assert not answers.occurs(text, [r"\b118\b", "x*"], regex=True)


def test_f1_counts_words_and_takes_the_best_answer():
  assert f1("the red red car", ["red car", "red"]) == pytest.approx(0.8)
  assert f1("blue", ["red car"]) == 0
  assert f1("The", ["a"]) == 1  # nothing and nothing
  assert f1("x", ["a"]) == 0
  assert f1("café au lait", ["cafe au lait"]) == pytest.approx(2 / 3)


def test_a_regular_expression_that_backtracks_for_ever_is_named(monkeypatch):
  monkeypatch.setattr(answers, "_SECONDS_PER_MATCH", 0.2)
  assert exact_match("a" * 40, [r"(a+)+$"], regex=True)
  for text, normalization in (("a" * 40 + "!", "official"), ("a" * 40 + "!a", "corrected")):
    with pytest.raises(ValueError, match=r"\(a\+\)\+\$.*4. characters"):
      exact_match(text, [r"(a+)+$"], regex=True, normalization=normalization)


def test_answers_are_compared_in_their_language():
  assert exact_match("die Panther", ["Panther"], language="de")
  assert not exact_match("die Panther", ["Panther"], language="en")
  assert not exact_match("हिंद", ["हिंदी"], normalization="corrected", language="hi")
  assert f1("黑豹队", ["黑豹"], language="zh") == pytest.approx(0.8)
  assert f1("黑豹队", ["黑豹"]) == 0


def test_what_precedes_matches_and_many_quick_ones_may_take_longer_than_one_match(monkeypatch):
  monkeypatch.setattr(answers, "_SECONDS_PER_MATCH", 0.02)
  with answers.MatchingClock() as clock:
    for begin in (lambda: None, lambda: clock.begin("a", "a")):
      until = time.thread_time() + 0.2
      while time.thread_time() < until:
        begin()
