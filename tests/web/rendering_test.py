"""Text never becomes markup, and numbers are written to be read."""

import html.parser

import pytest

from realm_jax.web.application import environment, highlighted, probability

HOSTILE = "<script>alert('x')</script>\"&"


def rendered(source, **context):
  return environment().from_string(source).render(context)


def test_texts_and_attributes_are_escaped():
  parser = html.parser.HTMLParser()
  seen = []
  parser.handle_starttag = lambda tag, attributes: seen.append((tag, dict(attributes)))
  parser.handle_data = lambda data: seen.append(data)
  made = rendered('<p title="{{ x }}" open>{{ x }}</p>', x=HOSTILE)
  assert "<script>" not in made
  parser.feed(made)
  assert seen[0] == ("p", {"title": HOSTILE, "open": None})
  assert "".join(seen[1:]) == HOSTILE


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
