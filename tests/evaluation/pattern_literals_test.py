import re

import pytest

from realm_jax.evaluation.pattern_literals import fold, required_literals


@pytest.mark.parametrize(
  ("pattern", "literals"),
  [
    ("Long Island|New\\s?York", {"long island", "york"}),
    ("Sept?(ember)?|Feb(ruary)?", {"sep", "feb"}),
    ("189[6789]", {"189"}),
    (r"\bred", {"red"}),
    (".*Eureka.*", {"eureka"}),
    (r"98(4|6)\s?-?\s?f(ee|oo)?t", {"98"}),
    ("((Watson|Crick).*){2}", {"watson", "crick"}),
    ("((Watson|Crick).*){0,2}", None),
    (r"\d+", None),
    ("abc|[0-9]", None),
    ("Zürich", {"rich"}),
    ("", None),
  ],
)
def test_literals_of_patterns(pattern, literals):
  assert required_literals(pattern) == literals


@pytest.mark.parametrize(
  "pattern", ["Kiss", "MINSK", "istanbul", "big(ger)? (fish|birds)", "s{2}k"]
)
@pytest.mark.parametrize(
  "text", ["kiſs", "\u212aISS", "mınsk", "İSTANBUL", "bIg fıſh", "BIGGER birdſ", "SS\u212a", "\xdf"]
)
def test_a_match_always_holds_a_literal(pattern, text):
  if re.search(pattern, text, re.IGNORECASE):
    assert any(literal in fold(text) for literal in required_literals(pattern))
