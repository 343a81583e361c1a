import itertools
import unicodedata

import numpy as np
import pytest

from realm_jax.data.words import split_words

# Latin with accents, precomposed and combining, CJK, kana, Hangul, Arabic with marks, Devanagari
# with spacing marks, Thai, emoji with skin tones, joiners and flags, and what stands between words.
PARTS = (
  *"aZé9_",
  "e\u0301",
  "o\u0308\u0304",
  "日本",
  "か\u3099",
  "한국",
  "مُحَمَّد",
  "हिन्दी",
  "ไทย",
  "😀",
  "👍🏽",
  "👩\u200d👩\u200d👧",
  "🇳🇴",
  "☀\ufe0f",
  "𝒳",
  "𠀀",
  *" \n\u00a0\u3000",
  *".,'’-–(&€",
)


def words(text):
  return [text[start:limit] for start, limit in split_words(text)]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("Oslo is, he said, old.", "Oslo is , he said , old ."),
    ("the U.S. Army of J. R. R. Tolkien", "the U.S. Army of J. R. R. Tolkien"),
    ("Dr. No saw St. Paul.", "Dr. No saw St. Paul ."),
    ("e.g. Ph.D. no.", "e.g. Ph . D. no ."),
    ("it is Norway's, they're Bob’s", "it is Norway 's , they 're Bob ’s"),
    ("O'Brien and d'Arc don't", "O'Brien and d'Arc don't"),
    ("Osc-Dis B&SR (re-elected)", "Osc-Dis B&SR ( re-elected )"),
    ("3,000.5 at 10:30, $5", "3,000.5 at 10:30 , $ 5"),
    ("1914–1918 -- and...", "1914 – 1918 -- and ..."),
    ("東京はTokyo", "東 京 はTokyo"),
    ("Zu\u0308rich!", "Zu\u0308rich !"),
    ("hi👩\u200d👩\u200d👧👍🏽🇳🇴🇸🇪", "hi 👩\u200d👩\u200d👧 👍🏽 🇳🇴 🇸🇪"),
    ("हिन्दी में", "हिन्दी में"),
    ("", ""),
  ],
)
def test_words(text, expected):
  assert words(text) == expected.split()


def test_words_hold_all_but_white_space_and_no_character_loses_its_marks():
  random = np.random.default_rng(0)
  for _ in range(300):
    text = "".join(random.choice(PARTS, random.integers(1, 30)))
    spans = split_words(text)
    assert "".join(text[start:limit] for start, limit in spans) == "".join(text.split())
    assert all(start < limit for start, limit in spans)
    assert not any(set(text[start:limit]) & set(" \n\u00a0\u3000") for start, limit in spans)
    for (_, limit), (start, _) in itertools.pairwise(spans):
      assert limit <= start
      if limit == start:
        assert not unicodedata.category(text[start]).startswith("M")
        assert "\u200d" not in text[start - 1 : start + 1]
