import itertools

import pytest

from realm_jax.text import analysis
from realm_jax.text.analysis import Analyzer


@pytest.mark.parametrize(
  ("language", "text", "terms"),
  [
    ("en", "The cats aren't in U.S. Cafés, 3,000 of 東京!", "cat aren us cafe 3000 東 京 東京"),
    ("en", "hepatitis C, vitamin A, a plan", "hepat c vitamin a plan"),
    ("en", "AB-1234-X", "ab1234x ab 1234 x"),
    ("en", "Python 2.7 for 1,000 euros", "python 2.7 1000 euro"),
    ("en", "max_pool_size poolSize", "max_pool_s max pool size poolsiz pool size"),
    ("en", ".NET-based", ".net-bas .net net base"),
    ("en", "e-mail email", "email e mail email"),
    ("en", "re-entry reentry", "reentri re entri reentri"),
    ("en", "boundary-layer, Navier-Stokes", "boundari layer navier stoke"),
    ("de", "Wie viele Häuser hat Zürich?", "wie viel haus hat zurich"),
    ("fr", "l’élève d'Élodie", "elev elod"),
    ("ru", "Сколько очков уступила защита?", "скольк очк уступ защит"),
    ("ar", "الـكِـتَـابُ", "كتاب"),  # stretched, with vowel marks
    ("fa", "كتابي", "کتابی"),  # with Arabic's letters
    ("hi", "डिफ़ेन्स की हिंदी", "डिफेन्स क हिंद"),  # vowel signs belong to their consonants
    ("tr", "IŞIK İstanbul kâr", "ışık istanbul kar ~isik ~istanbul ~kar"),
    ("vi", "Ma, má và MÀ 東", "ma má và mà 東 ~ma ~ma ~va ~ma"),
    ("uk", "українського українська", "украї украї"),  # no stemmer
    ("he", "שָׁלוֹם", "שלום"),
    ("zh", "黑豹队308分", "黑 豹 队 黑豹 豹队 308 分"),
    ("zh", "ＮＦＬ是NFL", "nfl 是 nfl"),
    ("ja", "スーパー", "ス ー パ ー スー ーパ パー"),
    ("ko", "서울은", "서 울 은 서울 울은"),
    ("th", "ดีมาก", "ดี ม า ก ดีม มา าก ดีมา มาก"),
    ("und", "lavoratore B-17G 1234567", "lavor b17g b 17g 17 g 1234567"),
  ],
)
def test_terms(language, text, terms):
  assert Analyzer([language]).terms(text) == terms.split()


_FORMS = [
  ("café", "cafe\u0301"),
  ("defines file", "deﬁnes ﬁle"),  # ligatures
  ("workflow", "work\u00adflow"),  # a soft hyphen
  ("database", "data\u200bbase"),  # a space of no width
  ("ABC Corporation 2024", "ＡＢＣ Ｃｏｒｐｏｒａｔｉｏｎ ２０２４"),
  ("istanbul", "İstanbul"),
  ("H2O", "H₂O"),
  ("x2", "x²"),
  ("Elodie", "Élodie"),
  ("elodie", "ÉLODIE"),
  ("Muller Strasse", "Müller Straße"),
  ("Lodz", "Łódź"),
  ("Soren oeuvre", "Søren œuvre"),
  ("O'Neill", "O’Neill"),
  ("1990-1995", "1990–1995"),
  ("C#", "C♯"),
  ("U.S.", "US"),
  ("don't", "don’t"),
]


@pytest.mark.parametrize("language", ["en", "fr", "de", "und"])
@pytest.mark.parametrize(("text", "same"), _FORMS)
def test_forms_of_a_text_are_found_by_the_plain_one(language, text, same):
  analyzer = Analyzer([language])
  assert {*analyzer.terms(text)} <= {*analyzer.terms(same)}
  assert analyzer.terms(text)


_ALONE = (
  "C++ C# F# .NET node.js C AT&T R&D Q&A S&P AB-1234-X B-52 TCP/IP 24/7 2.7 2.7.1 1,000 3,5 $5 50% "
  "#tag @user max_pool_size poolSize std::vector a.out 192.168.0.1 10:30 R2-D2 E=mc² H.264 COVID-19"
).split()


@pytest.mark.parametrize("language", ["en", "de", "und"])
def test_tokens_that_share_parts_differ(language):
  analyzer = Analyzer([language])
  terms = {token: {*analyzer.terms(token)} for token in _ALONE}
  for token, other in itertools.permutations(_ALONE, 2):
    assert terms[token] - terms[other], (token, other)


_AROUND = ["{}", "({})", "“{}”", "{},", "{};", "{}:", "{}?", "{}!", "[{}]", "`{}`", "**{}**"]


@pytest.mark.parametrize("language", ["en", "fr", "zh"])
@pytest.mark.parametrize("around", [*_AROUND, "see {}, now", "«{}»", "‘{}’", "{}…", "—{}—"])
def test_tokens_are_the_same_wherever_they_stand(language, around):
  analyzer = Analyzer([language])
  for token in _ALONE:
    assert set(analyzer.terms(token)) <= set(analyzer.terms(around.format(token))), token


@pytest.mark.parametrize(
  ("text", "parts"),
  [
    ("max_pool_size", "max pool size"),
    ("XMLHttpRequest", "xml http request"),
    ("AB-1234-X", "1234 x"),
    ("C++-based", "c++ based"),
    ("C/C++", "c c++"),
    ("ASP.NET", "asp net"),
    ("user@example.com", "user example"),
    ("foo::bar(baz)", "foo bar baz"),
    ("https://example.com/a_path?x=1", "example.com path"),
    ("AT&T's", "at&t"),
    ("R&D-budget", "r&d budget"),
    ("state-of-the-art", "state art"),
  ],
)
def test_parts_are_terms_beside_the_whole(text, parts):
  analyzer = Analyzer(["en"])
  assert set(analyzer.terms(parts)) <= set(analyzer.terms(text))


@pytest.mark.parametrize(
  ("language", "forms"),
  [
    ("en", "5km|5 km|5-km"),
    ("en", "16GB|16 GB|16-GB"),
    ("en", "500µg|500 µg|500 μg"),
    ("en", "iPhone15|iPhone 15"),
    ("en", "PDFs|PDF|pdf|pdfs"),
    ("en", "GPUs|GPU"),
    ("en", "TVs|TV"),
    ("en", "MP3s|mp3"),
    ("en", "NGOs|NGO"),
    ("en", "1,000|1000|1'000|1’000|1\u202f000|1\u00a0000"),
    ("en", "12,50,000|1250000|1,250,000"),
    ("de", "1.000|1000|1'000|1\u202f000"),
    ("de", "1.234.567|1234567"),
    ("fr", "1 000|1000|1\u202f000|1.000"),
    ("ru", "12 345 678|12345678"),
    ("hi", "१,०००|1000"),
    ("en", "the 🚀|🚀 launch|a🚀b"),
    ("en", "👍🏽|👍"),
  ],
)
def test_forms_find_each_other(language, forms):
  analyzer = Analyzer([language])
  terms = {form: {*analyzer.terms(form)} for form in forms.split("|")}
  for form, other in itertools.permutations(terms, 2):
    assert terms[form] & terms[other], (form, other)


@pytest.mark.parametrize(
  ("language", "text", "terms"),
  [
    ("en", "1.000", "1.000"),  # a fraction
    ("en", "in 2004 100 people", "2004 100 peopl"),
    ("fr", "en 2004 100 personnes", "en 2004 100 person"),
    ("fr", "12 34 56 78", "12 34 56 78"),
    ("de", "12.05.2020", "12.05.2020 12 05 2020"),
    ("en", "the 1990s, gas, dress, news", "1990s 1990 s gas dress news"),
    ("en", "To be or not to be", "to be or not to be"),
    ("en", "It\nIt is a novel.", "it novel"),
    ("en", "An AND gate. IT helps it", "and gate it help"),
    ("en", "© 2024 ™", "2024"),
  ],
)
def test_what_looks_like_another_form_is_none(language, text, terms):
  assert Analyzer([language]).terms(text) == terms.split()


@pytest.mark.parametrize(
  ("language", "question", "texts"),
  [
    ("vi", "má", ["má"]),
    ("vi", "ma", ["ma", "má", "mà", "Ma"]),
    ("vi", "Tiếng Việt", ["tiếng Việt", "tiê\u0301ng viê\u0323t"]),
    ("vi", "tieng viet", ["tiếng Việt", "tieng viet"]),
    ("vi", "tieng “viet”", ["tiếng Việt", "tieng viet"]),
    ("tr", "Kışın", ["kışın", "KIŞIN"]),
    ("tr", "kisin", ["kışın", "kişin", "kisin"]),
    ("tr", "öldü", ["öldü"]),
    ("tr", "rüzgâr", ["rüzgar"]),
    ("es", "papá", ["papa", "papá"]),  # marks of other languages are folded
  ],
)
def test_a_question_is_compared_with_its_marks_or_without_any(language, question, texts):
  analyzer = Analyzer([language])
  (asked,) = analyzer.in_each_language(question)
  others = ["ma", "má", "mà", "Ma", "tiếng Việt", "tieng viet", "kışın", "kişin", "kisin"]
  others += ["öldü", "oldu", *texts]
  assert {*texts} == {text for text in others if {*asked} <= {*analyzer.terms(text)}}
  for text in texts:
    words = [text[start:end] for start, end in analyzer.marks(question, text)]
    assert words == text.split()


def test_capitals_alone_mean_nothing():
  (terms,) = Analyzer(["en"]).in_each_language("WHAT IS THE CAPITAL OF FRANCE?")
  assert terms == ["what", "capit", "franc"]


_MARKED = [
  ("zh", "大卫", "[大卫]到了那里，站在大树前。"),
  ("ja", "首都", "東京は日本の[首都]です。"),
  ("ko", "서울", "[서울]은 크다"),
  ("th", "ภาษา", "[ภาษา]ไทย"),
  ("km", "ភាសា", "[ភាសា]ខ្មែរ"),
  ("hi", "किताब", "[किताब] मेज पर है।"),
  ("ta", "தமிழ்", "[தமிழ்] ஒரு மொழி."),
  ("bn", "বাংলা", "[বাংলা] ভাষা।"),
  ("te", "తెలుగు", "[తెలుగు] భాష."),
  ("he", "שלום", "[שָׁלוֹם] עולם"),
  ("ar", "كتب", "[كَتَبَ] الولد"),
  ("fr", "eleve", "l’[élève] d'Élodie"),
  ("fr", "1000", "[1\u202f000] euros, [1 000]"),
  ("en", "cafe", "a [cafe\u0301] there"),
  ("en", "C++", "We write [C++] here, no C."),
  ("en", "1000", "It costs [1,000] a year."),
  ("en", "4.2", "Version [4.2] is out."),
  ("en", "USA", "In the [U.S.A.] we"),
  ("en", "AT&T", "Ask [AT&T]."),
  ("en", "ebook", "an [e-book] (new)"),
  ("en", "e-book", "an [ebook]"),
  ("en", "pool", "max_[pool]_size"),
  ("en", "houses", "A [house], [Houses]! Horse"),
  ("en", "file", "a [ﬁle]"),
  ("en", "example", "https://[example].com/x no"),
  ("en", "O'Neill", "by [O’Neill]’s"),
  ("en", "🚀", "Up [🚀] there"),
  ("en", "To be or not", "[To] [be] [or] [not]\nto be, or not here"),
]


@pytest.mark.parametrize(("language", "question", "marked"), _MARKED)
def test_marks_are_where_the_terms_of_a_question_are(language, question, marked):
  text = marked.replace("[", "").replace("]", "")
  for languages in ([language], ["en", language]):
    pieces, last = "", 0
    for start, end in Analyzer(languages).marks(question, text):
      pieces, last = f"{pieces}{text[last:start]}[{text[start:end]}]", end
    assert pieces + text[last:] == marked


@pytest.mark.parametrize("language", ["en", "fr", "zh", "ar", "hi", "vi"])
def test_terms_are_those_of_their_spans(language):
  words = analysis.Words(language)
  texts = [form for pair in _FORMS for form in pair] + [marked for *_, marked in _MARKED] + _ALONE
  for text in texts:
    spans = [span for chunk in words._prepared(text).split() for span in words._spans(chunk)]
    assert sorted(words.terms(text)) == sorted(span.term for span in spans), text


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


def test_what_is_remembered_of_words_is_bounded_over_all_languages(monkeypatch):
  monkeypatch.setattr(analysis, "_MOST_WORDS", 60)
  monkeypatch.setattr(analysis, "_COUNTED", 1)
  mixed = Analyzer(["de", "en", "fi", "ru"])
  for number in range(100):
    mixed.in_each_language(f"word{number} {number}")
    assert sum(map(len, analysis._Cache._all.values())) <= 60
  assert mixed.terms("the houses") == ["hous"]
