import pytest

from realm_jax.data.salient_spans import find_salient_spans, to_byte_offsets


def found(text):
  raw = text.encode()
  return [raw[start:limit].decode() for start, limit in find_salient_spans(text)]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("it was on 20 July 1969 at night", ["20 July 1969"]),
    ("on the 20th of July, 1969 it rained", ["20th of July, 1969"]),
    ("on July 20, 1969 it rained", ["July 20, 1969"]),
    ("on 1 Sept. 1999 or Sep. 5th", ["1 Sept. 1999", "Sep. 5th"]),
    ("in July 1969 it rained", ["July 1969"]),
    ("in June it rained", ["June"]),
    ("born 1969-07-20 at home", ["1969-07-20"]),
    ("in 1969 it rained", ["1969"]),
    ("the 1960s and 1914–1918, then 1914-18", ["1960s", "1914–1918", "1914-18"]),
    ("he died in 44 BC; AD 70 followed", ["44 BC", "AD 70"]),
    ("the 19th century BC", ["19th century BC"]),
    ("the nineteenth century, the second millennium", ["nineteenth century", "second millennium"]),
    ("the year 12345 is far", ["12345"]),  # a number, not a date
    ("he may march", []),
  ],
)
def test_dates(text, expected):
  assert found(text) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("it met Neil Armstrong there", ["Neil Armstrong"]),
    ("it met J. R. R. Tolkien there", ["J. R. R. Tolkien"]),
    ("the U.S. Army is in the U.S. today", ["U.S. Army", "U.S."]),
    ("it is called Model X.", ["Model X"]),
    ("in the Isle of Man and the United Kingdom", ["Isle of Man and the United Kingdom"]),
    ("it met Åse Öberg in São Paulo", ["Åse Öberg", "São Paulo"]),
    ("it met Jean-Luc O’Brien at McDonald's", ["Jean-Luc O’Brien", "McDonald's"]),
    ("it read “Hamlet”, 'Macbeth' too", ["Hamlet", "Macbeth'"]),
    ("日本 has Tokyo は", ["Tokyo"]),
    ("nothing at all", []),
    ("", []),
  ],
)
def test_names(text, expected):
  assert found(text) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("it has 1,234,567 people and 3.5 percent", ["1,234,567", "3.5"]),
    ("it costs 12.", ["12"]),
    ("a4b and 7b are codes", []),
  ],
)
def test_numbers(text, expected):
  assert found(text) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("The British Museum is old.", ["British Museum"]),
    ("However, He and They met.", []),
    ("In 1922 it fell.", ["1922"]),
    ("After the War came peace.", ["War"]),
    ("Oslo is old.", ["Oslo"]),
    ("It is The Hague.", ["Hague"]),
  ],
)
def test_words_capitalised_by_the_sentence_are_no_names(text, expected):
  assert found(text) == expected


def test_spans_are_in_order_and_do_not_overlap():
  text = (
    "Zürich – On 20 July 1969 Åse Öberg paid 1,234 to the U.S. Army; 日本 in May 1970, J. Smith."
  )
  spans = find_salient_spans(text)
  assert len(spans) == 7
  assert all(start < limit for start, limit in spans)
  assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_byte_offsets():
  assert to_byte_offsets("abc", [(0, 1), (2, 3)]) == [(0, 1), (2, 3)]
  assert to_byte_offsets("é日😀x", [(0, 1), (1, 3), (3, 4)]) == [(0, 2), (2, 9), (9, 10)]
  assert to_byte_offsets("é", []) == []
