import numpy as np
import pytest

from realm_jax.text.segmentation import sentence_spans, spaced, word_spans


@pytest.mark.parametrize(
  "sentences",
  [
    ["The cat sat.", "It slept!", "Did it dream?", "Yes."],
    ["He lives in the U.S. today.", "She does not."],
    ["Dr. Smith met Mr. Jones.", "Mrs. Brown left."],
    ["Fruit, e.g. apples, is healthy.", "So are nuts, i.e. seeds."],
    ["A Ph.D. student came.", "A Ph.D. takes years."],
    ["J. R. R. Tolkien wrote it.", "It cost 3.50 in 1937."],
    ["See No. 5 as well.", "It is near St. Mary vs. Ely."],
    ["Café Zürich opens at nine.", "日本 is far away.", "The 😀 smiles."],
    ["Die Straße endet hier.", "Ok."],
  ],
)
@pytest.mark.parametrize("between", [" ", "  \n ", "\u00a0 "])
def test_borders(sentences, between):
  text = between.join(sentences)
  raw = text.encode()
  assert [raw[start:limit].decode() for start, limit in sentence_spans(text)] == sentences


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("", []),
    (" \n\u3000 ", []),
    ("no end", ["no end"]),
    ("\n Heading\n\nFirst sentence. ", ["Heading", "First sentence."]),
    ("\u3000é.\u3000", ["é."]),
    ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
  ],
)
def test_white_space_belongs_to_no_sentence(text, expected):
  raw = text.encode()
  assert [raw[start:limit].decode() for start, limit in sentence_spans(text)] == expected


@pytest.mark.parametrize(
  ("language", "sentences"),
  [
    ("de", ["Das ist z. B. gut, bzw. Nr. 5.", "Am 3. Oktober war es so."]),
    ("ru", ["Он жил в г. Москве и т. д. до 1990 года.", "Потом уехал."]),
    ("ar", ["هل هذه جملة؟", "نعم، هذه جملة."]),
    ("hi", ["यह पहला वाक्य है।", "यह दूसरा वाक्य है।"]),
    ("zh", ["这是一句话。", "他说：“好。”", "然后走了！"]),
    ("th", ["กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทยและเป็นเมืองใหญ่ที่สุด", "มีแม่น้ำเจ้าพระยาไหลผ่าน"]),
  ],
)
def test_borders_in_other_languages(language, sentences):
  text = ("" if language == "zh" else " ").join(sentences)
  raw = text.encode()
  spans = sentence_spans(text, language=language)
  assert [raw[start:limit].decode() for start, limit in spans] == sentences


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
