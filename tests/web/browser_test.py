"""The page in a real browser: type, read the cards, edit a passage, see the answer change."""

import functools

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is missing")
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.interop

from realm_jax.web.application import Example  # noqa: E402
from realm_jax.web.inspector.pages import make_app  # noqa: E402
from realm_jax.web.listening import LimitSettings  # noqa: E402
from tests.web.browsing import contrast  # noqa: E402

QUERY = "[MASK] is the money of Britain"


@pytest.fixture
def open_page(service, open_app):
  """`open_page(**settings)` opens the inspector."""
  app = make_app(
    service,
    limits=LimitSettings(hosts=("127.0.0.1",)),
    examples=[Example(text="[MASK] is the money of Japan", answer="yen")] * 6,
  )
  return functools.partial(open_app, app)


def answer(page):
  return page.locator(".answer .filled").inner_text()


def wait_for_answer(page, word):
  # The page's policy lets nothing be evaluated in it, so its locators are watched.
  expect(page.locator(".filled")).to_contain_text(word)


def test_type_read_the_cards_edit_and_see_the_answer_change(open_page, keep):
  page = open_page(viewport={"width": 1200, "height": 800})
  page.get_by_label("A sentence with").fill(QUERY)
  page.get_by_role("button", name="Ask", exact=True).click()
  page.wait_for_selector(".card")
  assert answer(page) == "Pound is the money of Britain"
  titles = page.locator(".card h3").all_inner_texts()
  assert titles == ["Britain", "Old", "Null passage"]
  card = page.locator("[data-passage='0']")
  assert card.locator(".text mark").inner_text() == "Pound"
  width = float(card.locator(".prior .fill").get_attribute("width")) / 100
  assert width == pytest.approx(float(card.locator("dd span").first.inner_text()), abs=0.001)
  assert "Without it" in card.inner_text()
  keep(page, "inspector")

  card.locator("summary").click()
  page.get_by_label("Text").first.fill(" ")
  page.get_by_role("button", name="Save and ask again").first.click()
  page.wait_for_selector(".refusal:focus")
  assert page.get_by_label("Text").first.input_value() == " " and answer(page).startswith("Pound")
  page.get_by_label("Text").first.fill("Euro is the money of Britain")
  page.get_by_role("button", name="Save and ask again").first.click()
  wait_for_answer(page, "Euro")
  assert card.locator(".badge").inner_text() == "edited"
  assert page.locator("#status").inner_text() == "Answer: Euro is the money of Britain"
  keep(page, "inspector-edited")

  page.get_by_role("button", name="Undo Britain").first.click()
  wait_for_answer(page, "Pound")
  page.get_by_role("button", name="Remove Britain").click()
  expect(page.locator("[data-passage='0']")).to_have_count(0)
  page.locator(".add summary").click()
  page.locator("#new-passage-text").fill("Yen is the money of Britain")
  page.get_by_role("button", name="Add and ask again").click()
  wait_for_answer(page, "Yen")
  assert page.locator(".edits li").count() == 2


def test_the_keyboard_is_enough(open_page):
  page = open_page()
  page.keyboard.press("Tab")
  assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
  page.get_by_label("A sentence with").focus()
  page.keyboard.type(QUERY)
  page.keyboard.press("Enter")
  page.wait_for_selector(".card")
  assert page.locator(".answer:focus .filled").count() == 1
  summary = page.locator("[data-passage='0'] summary")
  while not summary.evaluate("node => node === document.activeElement"):
    page.keyboard.press("Tab")
  page.keyboard.press("Enter")
  page.keyboard.press("Tab")
  page.keyboard.press("Tab")
  page.keyboard.press("Control+A")
  page.keyboard.type("Dollar is the money of Britain")
  page.keyboard.press("Tab")
  page.keyboard.press("Enter")
  wait_for_answer(page, "Dollar")
  assert page.locator(".answer:focus").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_answer_is_seen_at_once(open_page, keep, scheme):
  page = open_page(viewport={"width": 375, "height": 667}, color_scheme=scheme)
  page.locator("[data-text]").first.click()
  page.wait_for_selector(".answer:focus")
  page.goto(page.url)
  box = page.locator(".answer .filled").bounding_box()
  assert box["y"] + box["height"] < 400 and page.evaluate("scrollY") == 0
  assert page.evaluate("document.documentElement.scrollWidth") <= 375
  assert contrast(page, ".answer .filled") >= 7
  for selector in (".card .text", ".effect", ".symbol", ".note", "button.primary", "summary"):
    assert contrast(page, selector) >= 4.5, selector
  keep(page, f"inspector-phone-{scheme}")
