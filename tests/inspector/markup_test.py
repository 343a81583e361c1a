"""Text never becomes markup, and numbers are written to be read."""

import html.parser

import pytest

from realm_jax.inspector.markup import (
  bar,
  element,
  highlighted,
  join,
  probability,
  signed,
)

HOSTILE = "<script>alert('x')</script>\"&"


def test_children_and_attributes_are_escaped():
  made = element("p", {"title": HOSTILE, "data-x": 1, "hidden": False, "open": True}, HOSTILE)
  assert "<script>" not in made
  parser = html.parser.HTMLParser()
  seen = []
  parser.handle_starttag = lambda tag, attributes: seen.append((tag, dict(attributes)))
  parser.handle_data = lambda data: seen.append(data)
  parser.feed(made)
  assert seen[0] == ("p", {"title": HOSTILE, "data-x": "1", "open": None})
  assert "".join(seen[1:]) == HOSTILE


def test_markup_is_not_escaped_twice():
  inner = element("b", None, "a & b")
  assert join(inner, "<", None, 3) == "<b>a &amp; b</b>&lt;3"


def test_highlights_are_marked_and_the_rest_escaped():
  assert highlighted("<a> é <b>", ((0, 3), (4, 5))) == (
    "<mark>&lt;a&gt;</mark> <mark>é</mark> &lt;b&gt;"
  )
  assert highlighted("abc", ((0, 2), (1, 3))) == "<mark>ab</mark>c"


@pytest.mark.parametrize(
  ("value", "text"),
  [
    (1.0, "1.000"),
    (0.0341, "0.034"),
    (4.76e-7, "4.8 × 10⁻⁷"),
    (9.97e-5, "1.0 × 10⁻⁴"),
    (0.0, "0"),
    (float("nan"), "0"),
  ],
)
def test_probabilities(value, text):
  assert probability(value) == text


def test_a_sign_is_written():
  assert signed(-0.5) == "−0.50" and signed(0.5, digits=1) == "+0.5"


def test_a_bar_is_as_long_as_its_share():
  assert 'width="25.0"' in bar(0.25, kind="prior")
  assert 'width="100.0"' in bar(1.5, kind="prior") and 'width="0.0"' in bar(-1, kind="prior")
