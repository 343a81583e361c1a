"""Names that a server answers to, marks in texts, and numbers that are written to be read."""

import pytest

pytest.importorskip("fastapi")

from realm_jax.web.application import highlighted, probability
from realm_jax.web.listening import LimitSettings


@pytest.mark.parametrize(
  ("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("localhost", "localhost")]
)
def test_the_address_that_is_printed_is_answered(host, name):
  assert name in LimitSettings().with_local_names(host).hosts


def test_other_hosts_are_named_by_who_serves():
  assert not LimitSettings().with_local_names("0.0.0.0").hosts


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
