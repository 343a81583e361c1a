import pytest

from realm_jax.text.answers import normalize


@pytest.mark.parametrize(
  ("language", "text", "normal"),
  [
    ("de", "Die  Straße, der «Stadt»!", "straße stadt"),
    ("de", "Der", "der"),  # nothing but an article
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
  assert normalize(text, language) == normal
