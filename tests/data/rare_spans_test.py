import pickle

import numpy as np
import pytest

from realm_jax.data.rare_spans import RareSpans, SpanFinder
from realm_jax.data.salient_spans import find_salient_spans

RUSSIAN = [
  "Кэролайн Пэнтерс играли в лиге. Команда победила 7 февраля 2016 года, хотя она была слабее.",
  "В лиге она играла плохо, хотя команда была сильной. Потом команда играла в Денвере.",
  "Это был год, когда она была в лиге и играла хотя бы 12 раз.",
  "Хотя она играла, команда была слабой, и лига была другой.",
  "Была зима, и команда играла. Судья Смирнов ушёл, хотя она была в лиге NFL.",
]


def cut(text, spans):
  return [text[start:limit] for start, limit in spans]


def test_names_dates_and_numbers():
  spans = RareSpans("ru", RUSSIAN)
  assert {"Кэролайн Пэнтерс", "7 февраля 2016"} <= {*cut(RUSSIAN[0], spans.find(RUSSIAN[0]))}
  assert "Денвере" in cut(RUSSIAN[1], spans.find(RUSSIAN[1]))
  assert "12" in cut(RUSSIAN[2], spans.find(RUSSIAN[2]))
  found = cut(RUSSIAN[4], spans.find(RUSSIAN[4]))
  assert {"NFL", "Судья Смирнов"} <= {*found}
  assert not {"Была", "и", "в", "хотя"} & {*found}


def test_german_nouns_are_no_names():
  texts = ["Der Hund und die Katze sahen Angela Merkel in der Stadt. Die Katze lief zum Hund."]
  texts += [
    f"Die Katze und der Hund {i} sahen in der Stadt das Haus {i}; er lief" for i in range(9)
  ]
  spans = RareSpans("de", texts)
  found = cut(texts[0], spans.find(texts[0]))
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
  assert {*dates} <= {*cut(text, RareSpans("und", [text]).find(text))}


def test_terms_that_the_text_repeats_come_before_others():
  filler = [f"слово{i}" for i in range(200)]
  words = [*filler[:20], "планета", *filler[20:40], "планеты", *filler[40:60]]
  found = cut(" ".join(words), RareSpans("ru", [" ".join(filler)]).find(" ".join(words)))
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
      assert all(part == part.strip() for part in cut(text, spans))


def test_each_language_has_its_own_rules():
  english = "The Cairngorms are in Scotland since 1969."
  finder = pickle.loads(pickle.dumps(SpanFinder(["en", "ru"], [english, *RUSSIAN])))
  assert finder(english, "en") == find_salient_spans(english)
  raw = RUSSIAN[0].encode()
  found = [raw[start:limit].decode() for start, limit in finder(RUSSIAN[0], "ru")]
  assert found == cut(RUSSIAN[0], RareSpans("ru", RUSSIAN).find(RUSSIAN[0]))
