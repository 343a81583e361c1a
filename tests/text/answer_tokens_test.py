import pytest

from realm_jax.text import answer_tokens


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
  assert answer_tokens.contains(text, answer)


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
  assert not answer_tokens.contains(text, answer)


def test_spans_are_those_of_the_tokens():
  text = "e\u0301t\u00ad\u00e9, ﬁn Straße’s ที่ é ㎞"
  tokens = answer_tokens.joined(text).split()
  spans = answer_tokens.spans(text)
  assert tokens == ["ete", ",", "fin", "strasse", "’", "s", "ที่", "e", "km"]
  assert [text[first:limit] for first, limit in spans] == [
    "e\u0301t\u00ad\u00e9", ",", "ﬁn", "Straße", "’", "s", "ที่", "é", "㎞",
  ]  # fmt: skip
