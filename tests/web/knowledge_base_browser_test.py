"""The pages of a knowledge base in a real browser, on a phone."""

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is missing")
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.interop

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase  # noqa: E402
from realm_jax.knowledge_base.language_model import ChatServer  # noqa: E402
from realm_jax.web import streams  # noqa: E402
from realm_jax.web.knowledge_base.pages import make_app  # noqa: E402
from tests.corpus.document_files_test import pdf  # noqa: E402
from tests.knowledge_base import tiny_models  # noqa: E402
from tests.web.browsing import contrast  # noqa: E402
from tests.web.streams_test import writing  # noqa: E402

PHONE = {"viewport": {"width": 375, "height": 667}}
TOKEN = "a token that nobody guesses"
DOCUMENTS = [
  {"id": f"{n}.txt", "title": f"Plant {n}", "text": "Ferns grow in the shade. " * 20, "year": n}
  for n in range(1950, 1960)
]


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", DOCUMENTS, language="en")


def fits(page):
  return page.evaluate("document.documentElement.scrollWidth") <= 375


def sign_in(page):
  page.locator(".add summary").click()
  page.get_by_label("Edit token").fill(TOKEN)
  page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_hit_is_seen_at_once_and_has_the_focus(base, open_app, keep, scheme):
  page = open_app(make_app(base), **PHONE, color_scheme=scheme)
  page.get_by_label("A question").fill("what grows in the shade")
  page.keyboard.press("Enter")
  page.wait_for_selector("#results:focus")
  assert page.locator("#status").inner_text().startswith("10 passages: Plant")
  assert page.locator(".card mark").first.inner_text() == "grow"
  page.goto(page.url)
  first = page.locator(".card").first.bounding_box()
  assert first["y"] < 300 and first["y"] + first["height"] < 667 and fits(page)
  for selector in (".card .text", ".card a", ".effect", "button.primary", "summary", ".views a"):
    assert contrast(page, selector) >= 4.5, selector
  keep(page, f"knowledge-base-phone-{scheme}")


def test_the_answer_is_seen_at_once_and_has_the_focus(base, open_app, tmp_path, keep):
  base.add_reader(tiny_models.write(tmp_path / "reader", reads=True))
  page = open_app(make_app(base), **PHONE)
  page.get_by_role("link", name="Answer").click()
  page.get_by_label("A question").fill("what grows in the shade")
  page.get_by_role("button", name="Ask").click()
  page.wait_for_selector("#results:focus")
  answer = page.locator(".filled").inner_text()
  assert page.locator("#status").inner_text() == f"Answer: {answer}"
  assert page.locator(".card mark").all_inner_texts() == [answer]
  page.goto(page.url)
  box = page.locator(".filled").bounding_box()
  assert box["y"] + box["height"] < 667 and box["y"] < 300 and fits(page)
  keep(page, "knowledge-base-answer")


def test_an_answer_is_shown_while_it_is_written(base, open_app, monkeypatch):
  monkeypatch.setattr(streams, "_SILENT", 0.3)  # so that there are comments between the events
  with writing(["Ferns ", "<b> ", "grow", " [1]."], pause=1.0) as (url, _):
    page = open_app(make_app(base, generate=ChatServer(url, "m")), **PHONE)
    page.get_by_role("link", name="Answer").click()
    page.get_by_label("A question").fill("what grows in the shade")
    page.keyboard.press("Enter")
    page.wait_for_selector(".filled >> text=Ferns <b>")
    assert not page.locator("#results").count() and fits(page)
    page.wait_for_selector("#results:focus")
    assert page.locator(".filled").inner_text() == "Ferns <b> grow [1]."
    assert page.url.endswith("/answer?q=what+grows+in+the+shade")


def test_who_asks_again_sees_the_later_answer_alone(base, open_app):
  with writing(["Ferns ", *["and "] * 100], pause=0.2) as (url, seen):
    page = open_app(make_app(base, generate=ChatServer(url, "m")), **PHONE)
    page.get_by_role("link", name="Answer").click()
    for question in ("what grows", "what grows in the shade"):
      page.get_by_label("A question").fill(question)
      page.keyboard.press("Enter")
      page.wait_for_selector(".filled >> text=Ferns and")
    assert seen["left"].wait(5) and len(seen["asked"]) == 2
    page.wait_for_timeout(1000)  # in which the later answer goes on
    assert page.locator(".filled").count() == 1


def test_documents_are_added_changed_and_deleted_and_the_history_says_so(base, open_app, keep):
  page = open_app(make_app(base, edit_token=TOKEN), **PHONE)
  page.get_by_role("link", name="Documents").click()
  sign_in(page)
  page.get_by_text("Add a document").click()
  for label, text in (("Id", "moss"), ("Title", "Moss"), ("Text", "Moss likes water.")):
    page.get_by_label(label, exact=True).fill(text)
  page.get_by_label("Other fields").fill('{"year": 1970, "note": "it\'s"}')
  page.get_by_role("button", name="Add").click()
  page.wait_for_url("**/document?id=moss")
  page.get_by_text("Edit", exact=True).click()
  assert page.get_by_label("Other fields").input_value() == '{"year": 1970, "note": "it\'s"}'
  page.get_by_label("Text", exact=True).fill("Moss likes rain.")
  page.get_by_role("button", name="Save").click()
  page.wait_for_selector(".whole >> text=rain")
  assert base.search("moss", where={"year": 1970, "note": "it's"})[0].text == "Moss likes rain."
  page.locator("summary", has_text="Delete").click()
  page.get_by_role("button", name="Delete “Moss”").click()
  page.wait_for_url("**/documents")
  assert "moss" not in base
  changes = page.locator(".edits li").all_inner_texts()
  assert [change.split("1 ")[-1].split()[0] for change in changes[:3]] == [
    "deleted",
    "updated",
    "added",
  ]
  assert fits(page)
  keep(page, "knowledge-base-documents")
  page.get_by_role("link", name="Generations").click()
  page.wait_for_selector("h1 >> text=Generations")
  assert fits(page)


LONG = "x" * 600
PAGES = ("/", f"/?q=shade+{LONG}&k=40", "/documents", f"/document?id=i{LONG}", "/questions")


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_values_of_any_length_fit(base, open_app, keep, width, scheme):
  address = f"https://example.org/{LONG}"
  fields = {f"f{LONG}": LONG, "list": [LONG], "url": address}
  base.add([{"id": f"i{LONG}", "title": LONG, "text": f"shade {LONG} {address}", **fields}])
  base.feedback(f"q{LONG}", useful=[f"i{LONG}"], answer=LONG)
  page = open_app(
    make_app(base, edit_token=TOKEN),
    viewport={"width": width, "height": 800},
    color_scheme=scheme,
  )
  home = page.url.rstrip("/")
  page.goto(f"{home}/documents")
  sign_in(page)
  page.get_by_text("Sign out").wait_for()
  for number, path in enumerate((*PAGES, "/generations", "/docs")):
    page.goto(home + path)
    for summary in page.locator("summary").all():
      summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    keep(page, f"knowledge-base-long-{number}-{width}-{scheme}")
  page.goto(home + PAGES[3])
  for selector in (".text a", ".tools summary", ".tools button"):
    assert contrast(page, selector) >= 4.5, selector


def test_the_keyboard_is_enough(base, open_app, tmp_path):
  page = open_app(make_app(base, edit_token=TOKEN), viewport={"width": 1200, "height": 800})
  assert page.evaluate("document.activeElement.id") == "q"
  page.keyboard.type("shade/")
  page.keyboard.press("Enter")
  page.wait_for_selector("#results:focus")
  page.keyboard.press("/")
  assert page.evaluate("document.activeElement.id") == "q"
  assert page.get_by_label("A question").input_value() == "shade/"
  page.get_by_role("link", name="Documents").press("Enter")
  page.locator(".add summary").press("Enter")
  page.get_by_label("Edit token").fill(TOKEN)
  page.keyboard.press("Enter")
  page.get_by_text("Upload files").press("Enter")
  (tmp_path / "elm.txt").write_text("Elm\nElms give shade.")
  (tmp_path / "ash.md").write_text("# Ash\nAn ash is tall.")
  page.get_by_label("Files").set_input_files([tmp_path / "elm.txt", tmp_path / "ash.md"])
  page.get_by_role("button", name="Upload").press("Enter")
  page.get_by_role("link", name="Elm").wait_for()
  assert base.document("ash.md").title == "Ash"
  page.keyboard.press("/")
  page.wait_for_selector("#q:focus")
  page.keyboard.type("elms")
  page.keyboard.press("Enter")
  page.get_by_role("button", name="Not useful").press("Enter")
  page.get_by_text("Said about this question").press("Enter")
  assert base.past_question("elms").summary["not_useful"] == [["elm.txt", 0]]
  page.get_by_role("button", name="Take back").press("Enter")
  page.get_by_text("Said about this question").wait_for(state="detached")
  assert base.past_question("elms") is None
  page.get_by_role("button", name="Sign out").press("Enter")
  page.get_by_text("Sign in to change documents").wait_for()


def drop(page, *paths, at="h1"):
  """Drops files of this machine on a page, as a hand does."""
  box, session = page.locator(at).first.bounding_box(), page.context.new_cdp_session(page)
  data = {"items": [], "files": [*map(str, paths)], "dragOperationsMask": 1}
  for kind in ("dragEnter", "dragOver", "drop"):
    where = {"x": box["x"] + 5, "y": box["y"] + 5}
    session.send("Input.dispatchDragEvent", {"type": kind, **where, "data": data})


@pytest.mark.parametrize("at", ["h1", "input[type=file]"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_files_are_dropped_on_the_page(base, open_app, tmp_path, keep, at, is_empty):
  pytest.importorskip("pypdfium2")
  if is_empty:
    base = KnowledgeBase.create(tmp_path / "empty")
  page = open_app(make_app(base, edit_token=TOKEN), viewport={"width": 1200, "height": 800})
  (tmp_path / "elm.txt").write_text("Elm\n\nElms give shade.")
  (tmp_path / "ash.pdf").write_bytes(pdf([(20, "Ashes"), (11, "An ash is tall.")]))
  page.get_by_role("link", name="Documents").click()
  sign_in(page)
  page.get_by_text("Sign out").wait_for()
  if at != "h1" and not is_empty:
    page.get_by_text("Upload files").click()
  drop(page, tmp_path / "elm.txt", tmp_path / "ash.pdf", at=at)
  expect(page.get_by_role("button", name="Upload")).to_be_focused()
  assert page.url.endswith("/documents") and "elm.txt" not in base, "which the button adds"
  keep(page, f"knowledge-base-dropped-{is_empty}")
  page.keyboard.press("Enter")
  page.get_by_role("link", name="Elm", exact=True).wait_for()
  assert base.document("ash.pdf").title == "Ashes"
  assert [hit.page for hit in base.search("how tall is an ash", k=1)] == [1]


def test_it_works_without_javascript(base, open_app):
  page = open_app(make_app(base, edit_token=TOKEN), **PHONE, java_script_enabled=False)
  page.locator(".examples button").first.click()
  assert "q=Plant" in page.url and page.locator(".card").count() == 10
  page.get_by_role("link", name="Documents").click()
  sign_in(page)
  page.locator("summary", has_text="Add a document").click()
  page.get_by_label("Id", exact=True).fill("moss")
  page.get_by_label("Text", exact=True).fill("Moss likes water.")
  page.get_by_label("Other fields").fill("{year: 1970}")
  page.get_by_role("button", name="Add").click()
  assert page.locator(".refusal").is_visible()
  assert page.get_by_label("Text", exact=True).input_value() == "Moss likes water."
  page.get_by_label("Other fields").fill("")
  page.get_by_role("button", name="Add").click()
  page.locator("summary", has_text="Delete").click()
  assert "moss" in base
  page.get_by_role("button", name="Delete “moss”").click()
  page.locator("h1", has_text="Documents").wait_for()
  assert "moss" not in base
