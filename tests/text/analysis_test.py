import numpy as np
import pytest

from realm_jax.text.analysis import Analyzer


@pytest.mark.parametrize(
  ("language", "text", "terms"),
  [
    ("en", "The cats aren't in U.S. Cafés, 3,000 of 東京!", "cat aren café 000 東京"),
    ("de", "Wie viele Häuser hat Zürich?", "wie viel haus hat zurich"),
    ("ru", "Сколько очков уступила защита?", "скольк очк уступ защит"),
    ("ar", "الـكِـتَـابُ", "كتاب"),  # stretched, with vowel marks
    ("fa", "كتابي", "کتابی"),  # with Arabic's letters
    ("hi", "डिफ़ेन्स की हिंदी", "डिफेन्स क हिंद"),  # vowel signs belong to their consonants
    ("tr", "IŞIK İstanbul", "ışık istanbul"),
    ("uk", "українського українська", "украї украї"),  # no stemmer
    ("he", "שָׁלוֹם", "שלום"),
    ("zh", "黑豹队308分", "黑 豹 队 黑豹 豹队 308 分"),
    ("zh", "ＮＦＬ是NFL", "nfl 是 nfl"),
    ("ja", "スーパー", "ス ー パ ー スー ーパ パー"),
    ("ko", "서울은", "서 울 은 서울 울은"),
    ("th", "ดีมาก", "ดี ม า ก ดีม มา าก ดีมา มาก"),
    ("und", "lavoratore B-17G 1234567", "lavor b 17g 1234567"),
  ],
)
def test_terms(language, text, terms):
  assert Analyzer([language]).terms(text) == terms.split()


def test_english_terms_are_those_of_the_library():
  bm25s = pytest.importorskip("bm25s", reason="compares with bm25s")
  import Stemmer

  random = np.random.default_rng(0)
  alphabet = [*"abcdeinorst'’.- 09ÀßıİΣ\u0301\u200d", "東", "ह", "ि", "the ", "running ", "is "]
  texts = ["".join(random.choice(alphabet, size=40)) for _ in range(300)]
  theirs = bm25s.tokenize(
    texts, stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
  )
  analyzer = Analyzer(["en"])
  assert [analyzer.terms(text) for text in texts] == theirs


def test_of_several_languages_each_text_has_its_own():
  mixed = Analyzer(["de", "en", "zh"])
  texts = {
    "de": "Die Häuser der Stadt wurden im Jahre 1900 gebaut.",
    "en": "The houses of the city were built in the year 1900.",
    "zh": "这座城市的房屋建于1900年。",
  }
  for language, text in texts.items():
    assert mixed.terms(text) == Analyzer([language]).terms(text)


def test_what_is_no_tag_is_refused():
  with pytest.raises(ValueError, match="'german'.*de, pt-BR"):
    Analyzer(["german"])
