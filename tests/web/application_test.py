"""Names that a server answers to, marks in texts, and numbers that are written to be read."""

import html
import re
import sys

import pytest

pytest.importorskip("fastapi")

from realm_jax.web.application import highlighted, linked, probability
from realm_jax.web.listening import LimitSettings, listening


@pytest.mark.parametrize(
  ("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("localhost", "localhost")]
)
def test_the_address_that_is_printed_is_answered(host, name):
  assert name in LimitSettings().with_local_names(host).hosts


@pytest.mark.parametrize("library", ["fastapi", "python_multipart", "uvicorn"])
def test_what_the_extra_brings_is_named_before_anything_is_opened(monkeypatch, library):
  monkeypatch.setitem(sys.modules, library, None)
  refused = pytest.raises(ValueError, match=rf"{library}.*; serving needs the extra: pip")
  with refused, listening("127.0.0.1", 0):
    pass


def test_other_hosts_are_named_by_who_serves():
  assert not LimitSettings().with_local_names("0.0.0.0").hosts


def test_highlights_are_marked_and_the_rest_escaped():
  assert highlighted("<a> é <b>", ((0, 3), (4, 5))) == (
    "<mark>&lt;a&gt;</mark> <mark>é</mark> &lt;b&gt;"
  )
  assert highlighted("abc", ((0, 2), (1, 3))) == "<mark>ab</mark>c"


@pytest.mark.parametrize(
  ("text", "address"),
  [
    ("see https://a.example/b?c=d&e=f#g.", "https://a.example/b?c=d&amp;e=f#g"),
    ("(HTTP://A.example/Moss_(plant))", "HTTP://A.example/Moss_(plant)"),
    ("(http://a.example), and", "http://a.example"),
    ("https://a.example/é, https", "https://a.example/é"),
    ("见https://a.example/b。后", "https://a.example/b"),
    ('"http://a.example/"onclick="x"', "http://a.example/"),
    ("<http://a.example/'x'>", "http://a.example/&#39;x"),
    ("http://a.example/\u202egnp", "http://a.example/"),
    ("http://[::1]:80/", "http://[::1]:80/"),
    ("http://user@a.example", "http://user@a.example"),
    ("javascript:alert(1) ftp://a.example data:text/html,x", None),
    ("xhttp://a.example http:// https:/// mailto:a@b", None),
  ],
)
def test_addresses_on_the_web_alone_are_links(text, address):
  found = re.findall(r'<a href="([^"]*)" rel="[a-z ]+">([^<]*)</a>', linked(text))
  assert found == ([] if address is None else [(address, address)])
  assert html.unescape(re.sub("</?a[^>]*>", "", linked(text))) == text


def test_marks_go_through_links():
  text = "at http://a.example/moss now"
  assert linked(text, [(0, 5), (20, 28)]) == (
    '<mark>at </mark><a href="http://a.example/moss" rel="noopener noreferrer nofollow">'
    "<mark>ht</mark>tp://a.example/<mark>moss</mark></a><mark> now</mark>"
  )


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
