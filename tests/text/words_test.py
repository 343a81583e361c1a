import numpy as np
import pytest

from realm_jax.text.words import spaced, word_spans


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("Don't stop-go, U.S. 3,000.5!", "Don't|stop-go|U|S|3,000.5"),
    ("हिंदी में ५० किताबें।", "हिंदी|में|५०|किताबें"),  # with their vowel signs
    ("كِتَابٌ جديد، ١٢", "كِتَابٌ|جديد|١٢"),
    ("黑豹队在1999年防守", "黑|豹|队|在|1999|年|防守"),
    ("東京タワーです", "東京タワー|です"),
    ("กรุงเทพมหานครเป็นเมือง", "กรุงเทพมหานคร|เป็น|เมือง"),
    ("", ""),
  ],
)
def test_words(text, words):
  assert [text[start:limit] for start, limit in word_spans(text)] == [
    w for w in words.split("|") if w
  ]


def test_spaces_are_put_only_between_words_of_scripts_without_spaces():
  text = "plain text, with 3 kinds."
  assert spaced(text) == text
  assert spaced("在1999年防守 NFL").split() == ["在", "1999", "年", "防守", "NFL"]


def test_words_are_letters_in_order_in_any_mix_of_scripts():
  random = np.random.default_rng(0)
  alphabet = [*"aé1 .-’\n", "ह", "ि", "ك", "َ", "黑", "豹", "ー", "ア", "ก", "็", "한", "😀"]
  for _ in range(300):
    text = "".join(random.choice(alphabet, size=30))
    spans = word_spans(text)
    assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:], strict=False))
    inside = {i for start, limit in spans for i in range(start, limit)}
    assert inside >= {i for i, character in enumerate(text) if character.isalnum()}
    assert not any(text[i].isspace() or text[i] in ".😀" for i in inside)
