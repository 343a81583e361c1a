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
    # So does punctuation alone.
    ("", "/", True, False),
    ("%", "/", True, False),
    ("/ \u200b", "/", False, True),
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
  assert exact_match("a" * 40, [r"(a|aa)+$"], regex=True)
  for text, normalization in (("a" * 40 + "!", "official"), ("a" * 40 + "!a", "corrected")):
    with pytest.raises(ValueError, match=r"\(a\|aa\)\+\$.*4. characters"):
      exact_match(text, [r"(a|aa)+$"], regex=True, normalization=normalization)


def test_answers_are_compared_in_their_language():
  assert exact_match("die Panther", ["Panther"], language="de")
  assert not exact_match("die Panther", ["Panther"], language="en")
  assert not exact_match("हिंद", ["हिंदी"], normalization="corrected", language="hi")
  assert f1("黑豹队", ["黑豹"], language="zh") == pytest.approx(0.8)
  assert f1("黑豹队", ["黑豹"]) == 0


@pytest.mark.parametrize(
  ("language", "text", "normal"),
  [
    ("de", "Die  Straße, der «Stadt»!", "straße stadt"),
    ("de", "Der", "der"),  # nothing but an article
    ("fr", "?", "?"),  # nothing but punctuation
    ("zh", "……", "......"),
    ("es", "La casa de los Ríos", "casa de ríos"),
    ("fr", "L’école des Arts", "école arts"),
    ("ar", "الأوسكار، والبطولة", "أوسكار والبطولة"),  # not inside words
    ("hi", "किताबें ।", "किताबें"),  # with their vowel signs
    ("ru", "Первая мировая", "первая мировая"),
    ("zh", "“黑豹队”，３０８ 分 NFL", "黑 豹 队 308 分 nfl"),
    ("ja", "東京タワー。", "東 京 タ ワ ー"),
    ("th", "กี่ปี", "กี่ ปี"),
    ("zh", "", ""),
  ],
)
def test_normalised_answers(language, text, normal):
  assert answers.normalizer(language, "official")(text) == normal


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("(1185–1226)", "1185"),
    ("in 1986—when", "1986"),
    ("Pittsburgh Steelers'ı yendi", "Pittsburgh Steelers"),
    ("the co-operative's €5 note", "5"),
    ("the co-operative's €5 note", "operative"),
    ("1,000 men", "000"),
    ("about 20% of it", "20%"),
    ("about 20 % of it", "20%"),
    ("the U.S. cat", "U.S."),
    ("the U. S. cat", "U.S"),
    ("snake_case", "case"),
    # Case, accents, compatibility forms and invisible characters make no difference.
    ("ÉLODIE came", "elodie"),
    ("Élodie", "E\u0301lodie"),
    ("die Straße", "STRASSE"),
    ("İstanbul'da", "istanbul"),
    ("ﬁne ２０ km²", "fine 20 km2"),
    ("soft\u00adware", "software"),
    ("the Beatles", "\u200eThe Beatles\ufeff "),
    ("Paris", "Paris \u200b"),
    ("محمد كتــاب", "كِتَاب"),
    # Characters where words have no spaces.
    ("黑豹队防守", "豹队"),
    ("กรุงเทพมหานครเป็น", "มหานคร"),
    ("東京タワーは", "タワー"),
    ("年1952年", "1952"),
    ("हिंदी भाषा", "हिंदी"),
  ],
)
def test_a_text_has_an_answer(text, answer):
  assert answers.contains(text, answer)


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("11850 men", "1185"),
    ("the US cat", "U.S."),
    ("1000 men", "1,000"),
    ("catfish", "cat"),
    ("the cat. sat", "cat sat"),
    # A mark that belongs to a letter of its script is no accent.
    ("हिंद", "हिंदी"),
    ("ที่", "ท"),
    ("が", "か"),
    ("a text", ""),
    ("a text", " \u200b"),
  ],
)
def test_a_text_has_no_answer(text, answer):
  assert not answers.contains(text, answer)


def test_spans_are_those_of_the_tokens():
  text = "e\u0301t\u00ad\u00e9, ﬁn Straße’s ที่ é ㎞"
  tokens = answers.joined_tokens(text).split()
  spans = answers.token_spans(text)
  assert tokens == ["ete", ",", "fin", "strasse", "’", "s", "ที่", "e", "km"]
  assert [text[first:limit] for first, limit in spans] == [
    "e\u0301t\u00ad\u00e9", ",", "ﬁn", "Straße", "’", "s", "ที่", "é", "㎞",
  ]  # fmt: skip
