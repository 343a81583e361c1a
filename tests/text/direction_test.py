import pytest

from realm_jax.text.terminal import direction


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("Pound is the money of Britain", "ltr"),
    ("黑豹队的防守", "ltr"),
    ("शिल्पकार ने पुल बनाया", "ltr"),
    ("تأسست المدينة في عام 1100.", "rtl"),
    ("NFL هي رابطة كرة القدم", "rtl"),
    ("Salem (سالم) is a name", "ltr"),
    ("הגשר הגדול", "rtl"),
    ("33 - 12 ...", "auto"),
    ("", "auto"),
  ],
)
def test_most_letters_decide(text, expected):
  assert direction(text) == expected
