import concurrent.futures

import pytest
from py3langid import langid

from realm_jax.text import languages
from realm_jax.text.languages import language_of, languages_of

SENTENCES = {
  "ar": "تأسست المدينة في القرن السابع الميلادي.",
  "de": "Die Stadt wurde im siebten Jahrhundert gegründet.",
  "en": "The city was founded in the seventh century.",
  "fa": "این شهر در قرن هفتم میلادی تأسیس شد.",
  "fr": "La ville a été fondée au septième siècle.",
  "hi": "शहर की स्थापना सातवीं शताब्दी में हुई थी।",
  "ja": "この都市は七世紀に設立されました。",
  "ko": "이 도시는 7세기에 세워졌다.",
  "no": "Byen ble grunnlagt på det syvende århundre.",
  "ru": "Город был основан в седьмом веке.",
  "th": "เมืองนี้ก่อตั้งขึ้นในศตวรรษที่เจ็ด",
  "uk": "Місто було засноване в сьомому столітті.",
  "zh": "这座城市建于七世纪。",
}


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_a_sentence_tells_its_language(language, text):
  assert language_of(text) == language
  assert language_of(text, among=sorted({"en", "de", language})) == language


@pytest.mark.parametrize("text", ["", "text", "a b c", "1969, 12 345", "X-17 / B2", "Oslo"])
def test_what_says_little_is_english(text):
  assert language_of(text) == "en"
  assert language_of(text, among=["de", "zh"]) in ("de", "zh")


_TITLES = [
  "Saint-Denis", "Boris Godunov", "La Paz", "Minnesota", "Andante in C", "Hotel California", "Oslo",
  "Llanelli", "Der Spiegel", "Cassini", "Nova Scotia", "Helsinki", "Anti-aliasing", "Vector spaces",
]  # fmt: skip
_BENGALI = "Dhaka (Bengali: ঢাকা; ঢাকা বিভাগ) is the capital city of Bangladesh and its largest."


@pytest.mark.parametrize(
  ("texts", "languages"),
  [
    ([*_TITLES, SENTENCES["en"]], ("en",)),
    ([*_TITLES, _BENGALI], ("en",)),  # a word of another script
    (5 * [SENTENCES["zh"]] + ["Super Bowl 50, NFL: Carolina Panthers 丹佛野马队"], ("zh",)),
    ([*_TITLES, SENTENCES["de"], "Die Häuser der Stadt sind alt."], ("de",)),
    (99 * [SENTENCES["en"]] + [SENTENCES["de"]], ("en",)),  # less than 2 %
    (9 * [SENTENCES["en"]] + ["Das Haus ist alt und grün."], ("en",)),  # may be a mistake
    (30 * [SENTENCES["en"]] + 3 * [SENTENCES["de"]], ("de", "en")),
    (99 * [SENTENCES["en"]] + [SENTENCES["uk"]], ("en", "uk")),  # no mistake
    (99 * [SENTENCES["ru"]] + [SENTENCES["uk"]], ("ru",)),
  ],
)
def test_few_words_are_no_evidence_of_a_language(texts, languages):
  assert languages_of(texts) == languages


def test_the_languages_of_a_corpus_have_a_notable_share_of_it():
  texts = 60 * [SENTENCES["de"]] + 30 * [SENTENCES["zh"]] + [SENTENCES["fr"]]
  assert languages_of(texts) == ("de", "zh")
  assert languages_of(["", "12"]) == ("en",)


def test_threads_that_need_the_identifier_at_once_load_it_once(monkeypatch):
  loaded = []
  load = langid.LanguageIdentifier.from_model_file
  counted = lambda path: loaded.append(path) or load(path)  # noqa: E731
  monkeypatch.setattr(langid.LanguageIdentifier, "from_model_file", counted)
  languages._loaded_identifier.cache_clear()
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = [*pool.map(language_of, [SENTENCES["de"]] * 8)]
  assert (found, len(loaded)) == (["de"] * 8, 1)
