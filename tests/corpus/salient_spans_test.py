import pickle
import unicodedata

import numpy as np
import pytest

from realm_jax.corpus.salient_spans import (
  DATE,
  RareSpans,
  SpanFinder,
  find_dates,
  find_salient_spans,
)
from realm_jax.text.segmentation import to_byte_offsets


def found(text):
  return cut(text, find_salient_spans(text))


def cut(text, spans):
  raw = text.encode()
  return [raw[start:limit].decode() for start, limit in spans]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    # days
    ("On 12 May 1881 he", ["12 May 1881"]),
    ("on Sunday, July 20, 1969, at", ["Sunday, July 20, 1969"]),
    ("on 4th July or July 4th", ["4th July", "July 4th"]),
    ("the 1st of May 1890.", ["1st of May 1890"]),
    ("at 1969-07-20T20:17Z or 1969-07-20.", ["1969-07-20", "1969-07-20"]),
    ("on 20.07.1969 or 7/20/1969;", ["20.07.1969", "7/20/1969"]),
    ("on 32 May he", []),
    # months
    ("in Sept 1939 and Sept. 1939", ["Sept 1939", "Sept. 1939"]),
    ("you may march in May or March", []),
    # years
    ("in 1066, 1999 and 2025.", ["1066", "1999", "2025"]),
    ("44 BC, 44 B.C., 70 AD, AD 70 and 476 CE", ["44 BC", "44 B.C.", "70 AD", "AD 70", "476 CE"]),
    ("it has 1,969 of 1969.5 or $1969", []),
    # decades
    ("the 1960s, the 1960s–1970s, the 1800s", ["1960s", "1960s–1970s", "1800s"]),
    ("in the '60s and the ’70s", ["'60s", "’70s"]),
    ("in the sixties and the Roaring Twenties", ["sixties"]),
    ("a man in his sixties; the 334s", []),
    # centuries
    ("the 19th century and 20th-century art", ["19th century", "20th-century"]),
    ("the Eighteenth Century", ["Eighteenth Century"]),
    ("the 18th and 19th centuries", ["18th and 19th centuries"]),
    ("the 5th–4th century BC", ["5th–4th century BC"]),
    # ranges
    ("1914–1918, 1914-18, 1914 – 1918", ["1914–1918", "1914-18", "1914 – 1918"]),
    ("20–24 July 1969 and July 20–24, 1969", ["20–24 July 1969", "July 20–24, 1969"]),
    ("(12 May 1881 – 10 November 1938)", ["12 May 1881", "10 November 1938"]),
    ("May–July 1940, May 1940–July 1941", ["May–July 1940", "May 1940", "July 1941"]),
    ("from 1939 to 1945", ["1939", "1945"]),
    # seasons
    ("in the summer of 1969 and Winter 1941–42", ["summer of 1969", "Winter 1941–42"]),
    # beside characters of several bytes
    ("né le 12 May 1881 à Orléans; 昭和 in 1926。", ["12 May 1881", "1926"]),
  ],
)
def test_table_of_dates(text, expected):
  assert cut(text, find_dates(text)) == expected


@pytest.mark.parametrize(
  "words",
  [
    "January, February, March, April, May, June, July, August, September, October, November 1901",
    "on Monday 1 Jan, Tuesday 2 Feb, Wednesday 3 Mar, Thursday 4 Apr, Friday 5 Jun, Saturday 6 Jul",
    "Sunday, Aug 7 to Sep 8, Sept 9, Oct 1, Nov 2, Dec 3, December 4; A.D. 30, AD 31, '23 March'",
    "the first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh",
    "twelfth, thirteenth, fourteenth, fifteenth, sixteenth, seventeenth, eighteenth, nineteenth",
    "the twentieth, twenty-first, 3rd, the twenties, the thirties, the forties, the fifties",
    "the sixties, the seventies, the eighties, the nineties, nineteen-sixties, eighteen nineties",
    "spring 1901, summer of 1902, AUTUMN 1903, Fall 1904, winter 1905, (’70s) and '80s",
  ],
)
def test_no_match_of_the_pattern_is_missed(words):
  for text in (words, words.replace(", ", " century, "), words.split()[-1], words.upper()):
    assert find_dates(text) == to_byte_offsets(text, [m.span() for m in DATE.finditer(text)])


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("it met Neil Armstrong there", ["Neil Armstrong"]),
    ("it met J. R. R. Tolkien there", ["J. R. R. Tolkien"]),
    ("the U.S. Army is in the U.S. today", ["U.S. Army", "U.S."]),
    ("it is called Model X.", ["Model X"]),
    ("in the Isle of Man and the United Kingdom", ["Isle of Man and the United Kingdom"]),
    ("it met Åse Öberg in São Paulo", ["Åse Öberg", "São Paulo"]),
    ("it met Jean-Luc O’Brien at McDonald's", ["Jean-Luc O’Brien", "McDonald's"]),
    ("it read “Hamlet”, 'Macbeth' too", ["Hamlet", "Macbeth'"]),
    ("日本 has Tokyo は", ["Tokyo"]),
    ("it met Ṣalāḥ ad-Dīn in Ḥamāh near Ấn Độ", ["Ṣalāḥ", "Dīn", "Ḥamāh", "Ấn Độ"]),
    ("it met É. Zola and Владимир Набоков", ["É. Zola and Владимир Набоков"]),
    ("in Frank\xadfurt and a\u2060B", ["Frank\xadfurt"]),
    ("at AT&T, in R&D, of B & C", ["AT&T", "R&D", "B", "C"]),
    ("the WHO and the IT industry", ["WHO", "IT"]),
    ("it's AN/AWG-9 of FIRST Robotics", ["AN", "AWG-9 of FIRST Robotics"]),
    ("nothing at all", []),
    ("", []),
  ],
)
def test_names(text, expected):
  assert found(text) == expected
  for form in ("NFD", "NFKD", "NFC"):
    normalized = [unicodedata.normalize(form, name) for name in expected]
    assert found(unicodedata.normalize(form, text)) == normalized


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("it has 1,234,567 people and 3.5 percent", ["1,234,567", "3.5"]),
    ("it costs 12.", ["12"]),
    ("a4b and 7b are codes", []),
  ],
)
def test_numbers(text, expected):
  assert found(text) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("The British Museum is old.", ["British Museum"]),
    ("However, He and They met.", []),
    ("In 1922 it fell.", ["1922"]),
    ("After the War came peace.", ["War"]),
    ("Oslo is old.", ["Oslo"]),
    ("It is The Hague.", ["Hague"]),
    ("THE WAR IS OVER. I DO NOT SAY SO.", ["WAR IS OVER", "DO NOT SAY SO"]),
  ],
)
def test_words_capitalised_by_the_sentence_are_no_names(text, expected):
  assert found(text) == expected


RUSSIAN = [
  "Кэролайн Пэнтерс играли в лиге. Команда победила 7 февраля 2016 года, хотя она была слабее.",
  "В лиге она играла плохо, хотя команда была сильной. Потом команда играла в Денвере.",
  "Это был год, когда она была в лиге и играла хотя бы 12 раз.",
  "Хотя она играла, команда была слабой, и лига была другой.",
  "Была зима, и команда играла. Судья Смирнов ушёл, хотя она была в лиге NFL.",
]


def cut_characters(text, spans):
  return [text[start:limit] for start, limit in spans]


def test_names_dates_and_numbers():
  spans = RareSpans("ru", RUSSIAN)
  assert {"Кэролайн Пэнтерс", "7 февраля 2016"} <= {
    *cut_characters(RUSSIAN[0], spans.find(RUSSIAN[0]))
  }
  assert "Денвере" in cut_characters(RUSSIAN[1], spans.find(RUSSIAN[1]))
  assert "12" in cut_characters(RUSSIAN[2], spans.find(RUSSIAN[2]))
  found = cut_characters(RUSSIAN[4], spans.find(RUSSIAN[4]))
  assert {"NFL", "Судья Смирнов"} <= {*found}
  assert not {"Была", "и", "в", "хотя"} & {*found}


def test_german_nouns_are_no_names():
  texts = ["Der Hund und die Katze sahen Angela Merkel in der Stadt. Die Katze lief zum Hund."]
  texts += [
    f"Die Katze und der Hund {i} sahen in der Stadt das Haus {i}; er lief" for i in range(9)
  ]
  spans = RareSpans("de", texts)
  found = cut_characters(texts[0], spans.find(texts[0]))
  assert "Angela Merkel" in found
  assert not {"Der", "Die", "sahen", "lief"} & {*found}
  assert "Hund" not in found  # in every passage


@pytest.mark.parametrize(
  ("text", "dates"),
  [
    ("它于1998年3月4日成立。", ["1998年3月4日"]),
    ("在1970年代初，有 12.5% 的人。", ["1970年代", "12.5%"]),
    ("في ٧ فبراير ٢٠١٦ كان ٥٠٪ منهم", ["٧ فبراير ٢٠١٦", "٥٠٪"]),
    ("7 फ़रवरी 2016 को 1,234 लोग", ["7 फ़रवरी 2016", "1,234"]),
    ("El 7 de febrero de 2016 hubo 3 casos", ["7 de febrero de 2016", "3"]),
    ("Am 7. Februar 2016 war es so", ["7. Februar 2016"]),
  ],
)
def test_dates_of_many_languages(text, dates):
  assert {*dates} <= {*cut_characters(text, RareSpans("und", [text]).find(text))}


def test_terms_that_the_text_repeats_come_before_others():
  filler = [f"слово{i}" for i in range(200)]
  words = [*filler[:20], "планета", *filler[20:40], "планеты", *filler[40:60]]
  found = cut_characters(" ".join(words), RareSpans("ru", [" ".join(filler)]).find(" ".join(words)))
  assert {"планета", "планеты"} <= {*found}
  assert len(found) <= len(words) / 8 + 1


def test_spans_are_ordered_and_do_not_overlap():
  random = np.random.default_rng(0)
  alphabet = [*"aбВ1 .-\n", "हि", "黑", "豹队", "年", "Ж", "ко ", "2016 ", "Дом ", "ком "]
  texts = ["".join(random.choice(alphabet, size=60)) for _ in range(60)]
  for language in ("ru", "de", "zh", "und"):
    finder = RareSpans(language, texts)
    for text in texts:
      spans = finder.find(text)
      assert all(start < limit for start, limit in spans)
      assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
      assert all(part == part.strip() for part in cut_characters(text, spans))


def test_each_language_has_its_own_rules():
  english = "The Cairngorms are in Scotland since 1969."
  finder = pickle.loads(pickle.dumps(SpanFinder(["en", "ru"], [english, *RUSSIAN])))
  assert finder(english, "en") == find_salient_spans(english)
  raw = RUSSIAN[0].encode()
  found = [raw[start:limit].decode() for start, limit in finder(RUSSIAN[0], "ru")]
  assert found == cut_characters(RUSSIAN[0], RareSpans("ru", RUSSIAN).find(RUSSIAN[0]))
