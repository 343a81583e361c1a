import random

import pytest

from realm_jax.data.cloze_questions import cloze_question

EVERY_WORD = random.Random()
EVERY_WORD.random = lambda: 0.0


def _question(sentence, answer, *, title="", draw=EVERY_WORD):
  before, after = sentence.split(answer, maxsplit=1)
  return cloze_question(before, answer, after, title=title, draw=draw)


@pytest.mark.parametrize(
  ("answer", "words"),
  [
    ("Ada Lovelace", ("who", "what", "where", "which")),
    ("1843", ("when",)),
    ("10 December 1815", ("when",)),
    ("7,100", ("how many",)),
  ],
)
def test_the_interrogative_suits_the_span(answer, words):
  rest = "signed the treaty of the old town"
  assert _question(f"{answer} {rest}.", answer) in {f"{word} {rest}" for word in words}


def test_the_clause_of_the_span_is_asked_without_asides():
  sentence = "After the war, the bridge (a toll bridge) over the river was built in 1843; it fell."
  assert _question(sentence, "1843") == "when the bridge over the river was built in"


def test_short_clauses_take_their_neighbours():
  assert _question("In Bern, the town, a bear lives, they say.", "Bern").endswith(
    "in the town a bear lives they say"
  )


def test_the_title_replaces_a_pronoun_or_ends_the_question():
  born = _question("She was born in London of poor parents.", "London", title="Ada Lovelace")
  assert born.endswith("ada lovelace was born in of poor parents")
  named = _question("The baby was born in London of poor parents.", "London", title="Ada Lovelace")
  assert named.endswith("the baby was born in of poor parents ada lovelace")
  title_asked = _question("Then came Ada to the old house there.", "Ada", title="Ada Lovelace")
  assert title_asked.endswith("then came to the old house there")


def test_a_question_that_tells_the_answer_or_says_too_little_is_none():
  assert _question("Rome fell because the people of Rome slept.", "Rome") is None
  assert _question("Then Rome fell to them.", "Rome") is None


def test_the_same_draw_gives_the_same_question_and_drops_a_tenth_of_the_words():
  words = [f"w{n}" for n in range(1000)]
  sentence = f"{' '.join(words)} 1843."
  first, second = (_question(sentence, "1843", draw=random.Random(7)) for _ in range(2))
  assert first == second
  # 900 words in the mean, with a standard deviation below 10.
  assert 850 < len(first.split()) < 950
