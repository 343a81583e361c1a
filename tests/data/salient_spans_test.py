import pytest

from realm_jax.corpus.sentences import to_byte_offsets
from realm_jax.data.salient_spans import DATE, find_dates, find_salient_spans


def found(text):
  return cut(text, find_salient_spans(text))


def cut(text, spans):
  raw = text.encode()
  return [raw[start:limit].decode() for start, limit in spans]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    # days
    ("On 12 May 1881 he", ["12 May 1881"]),
    ("on Sunday, July 20, 1969, at", ["Sunday, July 20, 1969"]),
    ("on 4th July or July 4th", ["4th July", "July 4th"]),
    ("the 1st of May 1890.", ["1st of May 1890"]),
    ("at 1969-07-20T20:17Z or 1969-07-20.", ["1969-07-20", "1969-07-20"]),
    ("on 20.07.1969 or 7/20/1969;", ["20.07.1969", "7/20/1969"]),
    ("on 32 May he", []),
    # months
    ("in Sept 1939 and Sept. 1939", ["Sept 1939", "Sept. 1939"]),
    ("you may march in May or March", []),
    # years
    ("in 1066, 1999 and 2025.", ["1066", "1999", "2025"]),
    ("44 BC, 44 B.C., 70 AD, AD 70 and 476 CE", ["44 BC", "44 B.C.", "70 AD", "AD 70", "476 CE"]),
    ("it has 1,969 of 1969.5 or $1969", []),
    # decades
    ("the 1960s, the 1960s–1970s, the 1800s", ["1960s", "1960s–1970s", "1800s"]),
    ("in the '60s and the ’70s", ["'60s", "’70s"]),
    ("in the sixties and the Roaring Twenties", ["sixties"]),
    ("a man in his sixties; the 334s", []),
    # centuries
    ("the 19th century and 20th-century art", ["19th century", "20th-century"]),
    ("the Eighteenth Century", ["Eighteenth Century"]),
    ("the 18th and 19th centuries", ["18th and 19th centuries"]),
    ("the 5th–4th century BC", ["5th–4th century BC"]),
    # ranges
    ("1914–1918, 1914-18, 1914 – 1918", ["1914–1918", "1914-18", "1914 – 1918"]),
    ("20–24 July 1969 and July 20–24, 1969", ["20–24 July 1969", "July 20–24, 1969"]),
    ("(12 May 1881 – 10 November 1938)", ["12 May 1881", "10 November 1938"]),
    ("May–July 1940, May 1940–July 1941", ["May–July 1940", "May 1940", "July 1941"]),
    ("from 1939 to 1945", ["1939", "1945"]),
    # seasons
    ("in the summer of 1969 and Winter 1941–42", ["summer of 1969", "Winter 1941–42"]),
    # beside characters of several bytes
    ("né le 12 May 1881 à Orléans; 昭和 in 1926。", ["12 May 1881", "1926"]),
  ],
)
def test_table_of_dates(text, expected):
  assert cut(text, find_dates(text)) == expected


@pytest.mark.parametrize(
  "words",
  [
    "January, February, March, April, May, June, July, August, September, October, November 1901",
    "on Monday 1 Jan, Tuesday 2 Feb, Wednesday 3 Mar, Thursday 4 Apr, Friday 5 Jun, Saturday 6 Jul",
    "Sunday, Aug 7 to Sep 8, Sept 9, Oct 1, Nov 2, Dec 3, December 4; A.D. 30, AD 31, '23 March'",
    "the first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh",
    "twelfth, thirteenth, fourteenth, fifteenth, sixteenth, seventeenth, eighteenth, nineteenth",
    "the twentieth, twenty-first, 3rd, the twenties, the thirties, the forties, the fifties",
    "the sixties, the seventies, the eighties, the nineties, nineteen-sixties, eighteen nineties",
    "spring 1901, summer of 1902, AUTUMN 1903, Fall 1904, winter 1905, (’70s) and '80s",
  ],
)
def test_no_match_of_the_pattern_is_missed(words):
  for text in (words, words.replace(", ", " century, "), words.split()[-1], words.upper()):
    assert find_dates(text) == to_byte_offsets(text, [m.span() for m in DATE.finditer(text)])


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
