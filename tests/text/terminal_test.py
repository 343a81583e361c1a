import pytest

from realm_jax.text.terminal import column, direction, isolated, line, plain


@pytest.mark.parametrize(
  ("text", "filled"),
  [
    ("abc", "abc   "),
    ("abcdefgh", "abcdef"),
    ("黑豹队的", "黑豹队"),
    ("a黑豹队", "a黑豹 "),
    ("हिंदी", "हिंदी    "),  # two characters
    ("e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301", "e\u0301" * 6),
    ("سالم", "\u2067سالم\u2069  "),
  ],
)
def test_a_column_has_a_width(text, filled):
  assert column(text, 6) == filled


def test_only_what_runs_from_right_to_left_is_isolated():
  assert isolated("Grüße 黑 हिंदी") == "Grüße 黑 हिंदी"
  assert isolated("a שלום") == "\u2067a שלום\u2069"
  assert isolated("Salem (سالم)") == "\u2066Salem (سالم)\u2069"


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


def test_control_characters_are_shown_and_not_obeyed():
  hostile = "T\x1b]0;owned\x07 \x1b[2J\x9b1A\r\n\tgood\rbad\x00\u202egood\u2028"
  assert plain(hostile) == "T�]0;owned� �[2J�1A\n\tgood�bad��good�"
  assert line("a\nb\tc\x1b") == "a b c�" and column("a\x1b[1m", 6) == "a�[1m "
  assert plain("naïve 😀 שלום\u200f") == "naïve 😀 שלום\u200f"
