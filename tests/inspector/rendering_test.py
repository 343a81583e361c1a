"""Text never becomes markup, and numbers are written to be read."""

import html.parser

import jinja2
import pytest

from realm_jax.inspector.rendering import environment, highlighted, probability, signed

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


def test_what_a_template_lacks_is_an_error():
  with pytest.raises(jinja2.UndefinedError, match="'missing' is undefined"):
    rendered("{{ missing }}")


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
  bar = environment().get_template("answers.html").module.bar
  assert 'width="25.0"' in bar(0.25, kind="prior")
  assert 'width="100.0"' in bar(1.5, kind="prior") and 'width="0.0"' in bar(-1, kind="prior")
