"""A served knowledge base: its API, its pages without scripts, and who may change it."""

import concurrent.futures
import dataclasses
import errno
import gzip
import html
import json
import os
import re
import threading
import types

import pytest

fastapi = pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")
markupsafe = pytest.importorskip("markupsafe")

from realm_jax.devices.directory_lock import hold  # noqa: E402
from realm_jax.knowledge_base.folder import KIND  # noqa: E402
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase  # noqa: E402
from realm_jax.knowledge_base.language_model import ChatServer  # noqa: E402
from realm_jax.knowledge_base.store.columns import Strings  # noqa: E402
from realm_jax.web import listening  # noqa: E402
from realm_jax.web.knowledge_base.pages import make_app  # noqa: E402
from realm_jax.web.knowledge_base.serving import serve  # noqa: E402
from realm_jax.web.listening import LimitSettings  # noqa: E402
from tests.knowledge_base import tiny_models  # noqa: E402

TOKEN = "a token that nobody guesses"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HOSTILE = "<script>alert('x')</script>"
DOCUMENTS = [
  {"id": "a/moss.txt", "title": "Moss", "text": "Moss grows in the shade.", "year": 1958},
  {"id": "fern", "text": "Ferns grow in the shade of trees.", "year": 1960, "kind": "plant"},
  {"id": HOSTILE, "title": HOSTILE, "text": f"Shade {HOSTILE}", "kind": HOSTILE},
]


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", DOCUMENTS, language="en")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
  """A base that its tests only read."""
  return KnowledgeBase.create(tmp_path_factory.mktemp("unchanged") / "kb", DOCUMENTS, language="en")


def client_of(base, edit_token=None, generate=None, **limits):
  limits = LimitSettings(**limits)
  app = make_app(base, edit_token=edit_token, limits=limits, generate=generate)
  # An error of ours would be raised here instead of becoming a 500.
  return testclient.TestClient(app, base_url="http://localhost")


def editor_of(base, **limits):
  """Returns a browser that has signed in."""
  client = client_of(base, TOKEN, **limits)
  assert client.post("/sign_in", data={"token": TOKEN}).status_code == 200
  return client


def found(client, **query):
  response = client.get("/api/search", params=query)
  assert response.status_code == 200, response.text
  return [hit["id"] for hit in response.json()["hits"]]


def test_the_api_finds_what_python_finds(base):
  client = client_of(base)
  for where, text in (({}, "{}"), ({"year": {"gte": 1959}}, '{"year": {"gte": 1959}}')):
    hits = base.search("shade grows", k=2, where=where)
    answer = client.get("/api/search", params={"q": "shade grows", "k": 2, "where": text}).json()
    assert [(hit["id"], hit["score"]) for hit in answer["hits"]] == [(h.id, h.score) for h in hits]
    assert answer["hits"][0]["fields"] == hits[0].fields


@pytest.mark.parametrize(
  ("wrong", "reason"),
  [
    ({"were": '{"year": 1958}'}, "parameter 'were' is none of q, k, where"),
    ({"exact": "true"}, "'exact' is none of"),
    ({"question": "moss"}, "'question' is none of"),
    ({"where": ['{"year": 1958}', '{"kind": "plant"}']}, "'where' is there twice"),
    ({"k": ["1", "1"]}, "'k' is there twice"),
  ],
)
def test_no_condition_of_a_search_is_left_out_unsaid(base, wrong, reason):
  client = client_of(base)
  for path in ("/api/search", "/api/answer"):
    refused = client.get(path, params={"q": "shade", **wrong})
    assert refused.status_code == 422 and reason in refused.json()["detail"]
  assert client.get("/", params={"q": "shade", "utm_source": "x"}).status_code == 200


def test_answers_appear_once_a_reader_is_there(base, tmp_path):
  client = client_of(base)
  asked = {"q": "what grows in the shade", "where": '{"year": {"gte": 0}}'}
  assert 'href="/answer"' not in client.get("/").text
  refused = client.get("/api/answer", params=asked)
  assert refused.status_code == 422 and "reader" in refused.json()["detail"]
  base.add_reader(tiny_models.write(tmp_path / "reader", reads=True))
  assert 'href="/answer"' in client.get("/").text
  answer, expected = client.get("/api/answer", params=asked).json(), base.answer(asked["q"])
  assert (answer["text"], answer["place"]) == (expected.text, expected.place)
  hit = answer["hits"][answer["place"]]
  assert hit["text"][answer["start"] :].startswith(answer["text"]) and answer["text"]
  assert {hit["id"] for hit in answer["hits"]} <= {"a/moss.txt", "fern"}
  page = client.get("/answer", params={"q": asked["q"]})
  assert page.text.count(f"<mark>{expected.text}</mark>") == 2  # alone and in its passage
  nothing = client.get("/answer", params={"q": "xylophone"})
  assert nothing.status_code == 200 and "No answer" in nothing.text


def test_a_generated_answer_is_shown_with_what_it_cites_and_what_it_should_not(base):
  replies = [f"Moss [1], {HOSTILE} [9].", "Moss [1].", "NOT FOUND"]
  client = client_of(base, generate=lambda *_: replies[0])
  assert 'href="/answer"' in client.get("/").text
  answer = client.get("/api/answer", params={"q": "moss in the shade"}).json()
  assert (answer["text"], answer["cited"], answer["unknown"]) == (replies[0], [0], [9])
  assert answer["hits"][0]["id"] == "a/moss.txt" and answer["probability"] is None
  page = client.get("/answer", params={"q": "moss in the shade"}).text
  assert "Careful: it cites [9], which none" in page and HOSTILE not in page
  assert "Moss [1], &lt;script" in page
  replies.pop(0)
  assert "Careful" not in client.get("/answer", params={"q": "moss"}).text
  replies.pop(0)
  assert "No answer was found" in client.get("/answer", params={"q": "moss"}).text


def test_a_language_model_that_cannot_be_reached_is_a_bad_gateway(base):
  client = client_of(base, generate=ChatServer("http://127.0.0.1:1/v1"))
  refused = client.get("/api/answer", params={"q": "moss"})
  assert refused.status_code == 502 and "Connection refused" in refused.json()["detail"]
  assert "Connection refused" in client.get("/answer", params={"q": "moss"}).text


def test_documents_are_read_as_they_were_added(base):
  client = client_of(base)
  for document in DOCUMENTS:
    read = client.get("/api/document", params={"id": document["id"]}).json()
    assert read == {"title": "", **document}
  pages = [client.get("/api/documents", params={"first": n, "count": 2}).json() for n in (0, 2)]
  listed = [document["id"] for page in pages for document in page["documents"]]
  assert sorted(listed) == sorted(document["id"] for document in DOCUMENTS)
  assert pages[0]["num_documents"] == 3


def test_changes_need_the_token_and_are_seen_at_once_and_by_others(base):
  client = client_of(base, TOKEN)
  elm = {"documents": [{"id": "elm", "text": "An elm gives shade.", "year": 1970}]}
  for headers in ({}, {"authorization": "Bearer another"}, {"authorization": TOKEN}):
    assert client.post("/api/documents", json=elm, headers=headers).status_code == 403
    deleted = client.delete("/api/document", params={"id": "fern"}, headers=headers)
    assert deleted.status_code == 403
  assert len(base) == 3
  assert client.post("/api/documents", json=elm, headers=BEARER).json()["added"] == 1
  assert found(client, q="elm") == ["elm"] and "elm" in KnowledgeBase(base.path)
  elm["documents"][0]["year"] = 1971
  assert client.post("/api/documents", json=elm, headers=BEARER).status_code == 422
  replacing = client.post("/api/documents", json={**elm, "replace": True}, headers=BEARER)
  assert replacing.json()["updated"] == 1
  gone = {"params": {"id": "elm"}, "headers": BEARER}
  assert client.delete("/api/document", **gone).status_code == 204
  assert client.delete("/api/document", **gone).status_code == 404
  changes = [(c["added"], c["updated"], c["deleted"]) for c in client.get("/api/history").json()]
  assert changes == [(0, 0, 1), (0, 1, 0), (1, 0, 0), (3, 0, 0)]


def test_nobody_may_change_anything_unless_asked_for(base):
  client = client_of(base)
  refused = client.delete("/api/document", params={"id": "fern"}, headers=BEARER)
  assert refused.status_code == 403 and "edit token" in refused.json()["detail"]
  assert client.post("/sign_in", data={"token": TOKEN}).status_code == 403
  assert client.post("/documents", data={"action": "delete", "id": "fern"}).status_code == 403
  assert "fern" in base and "Sign in" not in client.get("/documents").text
  for token, reason in (("short", "5 characters"), ("ein geheimer Schlüssel", "ASCII")):
    with pytest.raises(ValueError, match=reason):
      make_app(base, edit_token=token)


def test_a_browser_that_signed_in_adds_changes_and_deletes(base):
  client = client_of(base, TOKEN)
  elm = {"action": "add", "id": "elm", "title": "Elm", "text": "Elms die.", "fields": '{"year": 1}'}
  assert client.post("/documents", data=elm).status_code == 403
  assert client.post("/sign_in", data={"token": "another"}).status_code == 403
  assert "Add a document" in client.post("/sign_in", data={"token": TOKEN}).text
  assert TOKEN not in client.cookies.values()
  page = client.post("/documents", data=elm)
  assert page.url.path == "/document" and "Elms die." in page.text
  assert base.search("elm", where={"year": 1})[0].id == "elm"
  again = client.post("/documents", data={**elm, "text": "Elms live."})
  assert again.status_code == 422 and "&#39;elm&#39; with another content" in again.text
  changed = client.post("/documents", data={**elm, "action": "update", "text": "Elms live."})
  assert "Elms live." in changed.text
  lines = {**elm, "action": "update", "text": "Elms live.\r\nThey grow."}  # as browsers send them
  client.post("/documents", data=lines)
  same = {"id": "elm", "title": "Elm", "text": "Elms live.\nThey grow.", "year": 1}
  assert base.add([same]).unchanged == 1
  assert base.document("elm").text == "Elms live.\nThey grow."
  for wrong in ({"fields": "year"}, {"text": " "}, {"action": "fly"}, {"id": ""}):
    assert client.post("/documents", data={**elm, "action": "update", **wrong}).status_code == 422
  client.post("/documents", data={"action": "delete", "id": "elm"})
  assert "elm" not in base and "1 deleted" in client.get("/documents").text
  form = {"action": "add", "id": "n" * 9000, "title": "Elms of Norway"}
  assert client.post("/documents", data={**form, "title": " "}).status_code == 422
  assert client.post("/documents", data=form).status_code == 200
  assert found(client, q="norway") == [form["id"]], "an id may be long, and a title be all"


def test_a_change_that_was_made_meanwhile_is_not_overwritten_unseen(base):
  client = editor_of(base)

  def typed(page, **others):
    (state,) = re.findall(r'name="state" value="(\w+)"', page)
    own = {"action": "update", "id": "fern", "title": "Fern", "text": "Mine.", "state": state}
    return {**own, **others}

  first = client.get("/document?id=fern").text
  base.update([{"id": "fern", "title": "Fern", "text": "Theirs."}])
  refused = client.post("/documents", data=typed(first, fields="[1]"))
  assert refused.status_code == 422 and "was changed or deleted" in refused.text
  assert "Theirs." in refused.text and "Mine." in refused.text
  assert base.document("fern").text == "Theirs."
  assert client.post("/documents", data=typed(refused.text, fields="[1]")).status_code == 422
  client.post("/documents", data=typed(refused.text))
  assert base.document("fern").text == "Mine."
  base.delete("fern")
  assert client.post("/documents", data=typed(refused.text)).status_code == 422
  assert "fern" not in base


@pytest.mark.parametrize("action", ["update", "delete"])
def test_of_two_changes_of_one_page_sent_at_once_the_second_is_refused(base, monkeypatch, action):
  client = editor_of(base)
  (state,) = re.findall(r'name="state" value="(\w+)"', client.get("/document?id=fern").text)
  change, update = getattr(base, action), base.update

  def after_another(asked):
    update([{"id": "fern", "title": "Fern", "text": "Theirs."}])
    return change(asked)

  monkeypatch.setattr(base, action, after_another)
  own = {"action": action, "id": "fern", "title": "Fern", "text": "Mine.", "state": state}
  refused = client.post("/documents", data=own)
  assert refused.status_code == 422 and "was changed or deleted" in refused.text
  assert base.document("fern").text == "Theirs."


@pytest.mark.parametrize(
  ("action", "wrong", "status", "reason"),
  [
    ("add", {"fields": "{year"}, 422, "JSON"),
    ("add", {"id": ""}, 422, "needs an id"),
    ("add", {"id": "fern"}, 422, "with another content"),
    ("add", {"title": "T" * 2001}, 422, "title has 2,001 characters"),
    ("update", {"id": "fern", "fields": '{"n": NaN}'}, 422, "NaN"),
    ("update", {"id": "fern", "fields": "[1]"}, 422, "JSON"),
    ("update", {"id": "gone", "fields": "[1]"}, 422, "JSON"),
  ],
)
def test_a_refused_change_keeps_what_was_typed(base, action, wrong, status, reason):
  client = client_of(base, TOKEN)
  typed = {"action": action, "id": "elm", "title": "<Elm>", "text": "\nElms 'die'.", "fields": "{}"}
  typed |= wrong
  stranger = client.post("/documents", data=typed)
  client.post("/sign_in", data={"token": TOKEN})
  editor = client.post("/documents", data=typed)
  with hold(base.path, kind=KIND):
    busy = client.post("/documents", data={**typed, "id": "ash", "title": "Elm", "fields": "{}"})
  assert (stranger.status_code, editor.status_code, busy.status_code) == (403, status, 409)
  assert reason in editor.text and int(busy.headers["retry-after"]) > 0
  for page in (stranger.text, editor.text):
    for value in (typed["id"], typed["title"], typed["text"], typed["fields"]):
      assert str(markupsafe.escape(value)) in page
  assert 'target="_blank"' in stranger.text and len(base) == 3


def test_a_question_on_the_page_may_follow_another(base):
  client, asked = client_of(base), {"q": "and in 1960", "after": "where do ferns grow"}
  assert "No passage" in client.get("/", params={"q": asked["q"]}).text
  page = client.get("/", params=asked).text
  assert 'id="hit-1"' in page and 'value="where do ferns grow"' in page and "Options: after" in page


def test_the_page_says_in_words_how_probable_an_answer_is(base, monkeypatch):
  search = KnowledgeBase.search

  def with_a_figure(*args, **kwargs):
    return dataclasses.replace(search(*args, **kwargs), answerable=0.74)

  monkeypatch.setattr(KnowledgeBase, "search", with_a_figure)
  assert "probably (74 %)" in client_of(base).get("/?q=moss").text


def test_a_refused_search_keeps_what_was_typed(base):
  for typed, reason in (
    ({"q": "moss", "field": "year", "equal": "1958", "min_answerable": "high"}, "a valid number"),
    ({"q": "moss", "min_answerable": "0.5"}, "train"),
    ({"q": "m" * 2001, "field": "year", "least": "7"}, "q has 2,001 characters"),
    ({"q": "moss", "field": "year", "equal": "7" * 2001}, "equal has 2,001 characters"),
  ):
    refused = client_of(base).get("/", params=typed)
    assert refused.status_code == 422 and reason in refused.text
    for value in (typed["q"], typed.get("equal", ""), typed.get("least", "")):
      assert f'value="{value}"' in refused.text


def test_options_of_the_page_are_parameters_of_its_address(tmp_path):
  text = "Moss grows in the shade of tall trees near the river."
  records = [{"id": f"copy{n}", "text": text, "date": f"200{n}-01-01"} for n in range(3)]
  records.append({"id": "long", "text": " ".join(f"Moss {n} grows here." for n in range(9))})
  base = KnowledgeBase.create(tmp_path / "kb", records, language="en", passage_words=12)
  client = client_of(base)
  plain = client.get("/", params={"q": "moss grows"})
  assert "<summary>Options</summary>" in plain.text and plain.text.count('class="card"') == 6
  once = {"q": "moss grows", "per_document": "1", "distinct": "true", "around": "", "newer": ""}
  page = client.get("/", params=once).text
  assert "Options: per document, distinct</summary>" in page and page.count('class="card"') == 2
  assert page.count("Nearly the same:") == 1 and 'value="true" checked> The same' in page
  page = client.get("/", params={"q": "moss grows", "around": "1"}).text
  assert page.count("<mark>Moss</mark> 4") > plain.text.count("<mark>Moss</mark> 4") == 1
  page = client.get("/", params={"q": "river", "newer": "date:30", "explain": "true"}).text
  assert page.index("id=copy2") < page.index("id=copy1") and page.count("Score: words") == 3
  found = client.get("/api/search", params={"q": "moss grows", "per_document": 1, "k": 9}).json()
  assert len({hit["id"] for hit in found["hits"]}) == len(found["hits"]) == 4
  for name, wrong in (("per_document", 0), ("around", 21), ("newer", "date"), ("distinct", "x")):
    refused = client.get("/", params={"q": "moss", name: wrong})
    assert refused.status_code == 422 and name in refused.text


def test_deleting_asks_and_whoever_signs_out_changes_nothing(base):
  client = client_of(base, TOKEN)
  assert "Delete" not in client.get("/document?id=fern").text
  assert "Sign out" not in client.get("/").text
  client.post("/sign_in", data={"token": TOKEN})
  page = client.get("/document?id=fern").text
  summary, button = page.index("<summary>Delete"), page.index("<button>Delete “<bdi>fern")
  assert summary < button < page.index("</details>", summary)
  assert "Sign out" in client.get("/").text
  assert "Sign in" in client.post("/sign_out").text
  assert client.post("/documents", data={"action": "delete", "id": "fern"}).status_code == 403
  assert "fern" in base


@pytest.mark.parametrize(
  ("condition", "expected"),
  [
    ({"field": "year", "least": "1959"}, {"fern"}),
    ({"field": "year", "most": "1959"}, {"a/moss.txt"}),
    ({"field": "year", "equal": "1958, 1960"}, {"a/moss.txt", "fern"}),
    ({"field": "kind", "equal": "plant"}, {"fern"}),
    ({"field": "kind", "least": "p", "most": "q"}, {"fern"}),
    ({"field": "kind", "least": "7"}, {"fern", HOSTILE}),
    ({"field": "year"}, {"a/moss.txt", "fern", HOSTILE}),
    ({"field": "author", "equal": "Lee, Ann"}, {"fern"}),
    ({"field": "author", "equal": 'Kim, "Lee, Ann"'}, {"a/moss.txt", "fern"}),
    ({"field": "author", "equal": '"'}, set()),
    ({"field": "year", "equal": "null"}, set()),
    ({"field": "year", "equal": "NaN, 1960"}, {"fern"}),
    ({"field": "author", "equal": "-Infinity, 1e400, Kim"}, {"a/moss.txt"}),
    ({"field": "year", "least": "NaN"}, set()),
    ({"field": "tags", "least": "1.5"}, {"fern"}),
    ({"field": "year", "least": "1959", "where": '{"author": "Kim"}'}, set()),
    ({"field": "year", "least": "1959", "where": '{"author": "Lee, Ann"}'}, {"fern"}),
  ],
)
def test_the_page_filters_by_a_field(base, condition, expected):
  base.update(
    [
      {**DOCUMENTS[0], "author": "Kim", "tags": ["1.2"]},
      {**DOCUMENTS[1], "author": "Lee, Ann", "tags": ["1.10", "1.9"]},
    ]
  )
  page = client_of(base).get("/", params={"q": "shade", **condition}).text
  titles = {"a/moss.txt": ">Moss</a>", "fern": ">fern</a>", HOSTILE: "&lt;/script&gt;</a>"}
  assert {id for id, title in titles.items() if title in page.partition("<main")[2]} == expected


@pytest.mark.parametrize(
  "path", ["/", "/answer", "/documents", "/document", "/generations", "/docs"]
)
def test_what_is_stored_and_typed_is_escaped(base, path):
  client = editor_of(base)
  query = {"q": f"shade {HOSTILE}", "id": HOSTILE, "field": "kind", "equal": HOSTILE}
  page = client.get(path, params=query)
  assert page.status_code == (422 if path == "/answer" else 200) and HOSTILE not in page.text
  assert page.text.count("<script") <= 1
  assert "unsafe" not in page.headers["content-security-policy"]


PAGE = {"accept": "text/html,*/*;q=0.8"}


@pytest.mark.parametrize(
  ("path", "status", "reason"),
  [
    ("/api/search?q=moss&k=1000000000", 422, None),
    ("/api/search?q=moss&k=0", 422, None),
    ("/api/search?q=" + "a" * 3000, 422, None),
    *((f"/api/search?q=moss&{name}=" + "9" * 400, 422, None) for name in ("k", "per_document")),
    ("/?q=moss&around=" + "9" * 400, 422, "around"),
    ("/api/search?q=%ff%00", 200, None),
    ("/api/search?q=moss&where=year", 422, None),
    ("/api/search?q=moss&min_answerable=0.5", 422, None),
    ("/api/search?q=moss&min_answerable=high", 422, None),
    ("/api/search?q=moss&where=" + "[" * 1999, 422, None),
    ('/api/search?q=moss&where={"year":NaN}', 422, None),
    ("/api/search?q=%20", 200, None),
    ('/api/search?q=moss&where={"year":{"gte":{}}}', 422, None),
    ('/api/search?q=moss&where={"year":{"gte":1950,"lt":null}}', 422, None),
    ('/api/search?q=moss&where={"year":' + "9" * 1900 + "}", 200, None),
    ("/api/document?id=..%2F..%2Fetc%2Fpasswd", 404, None),
    ("/api/answer?q=moss", 422, None),
    ("/answer?q=moss", 422, "no reader"),
    ("/generations", 200, "Generations"),
    ("/?q=moss&min_answerable=", 200, "Moss"),
    ("/?q=moss&field=year&equal=" + "[" * 1999, 200, "moss"),
    ("/?q=moss&field=yaer&equal=1", 422, "yaer"),
    ("/nowhere", 404, "Not Found"),
    ("/document?id=elm", 404, "there is no document &#39;elm&#39;"),
    ("/document", 422, "query.id: Field required"),
    ("/documents?first=-1", 422, "query.first: Input should be"),
    ("/static/nothing.js", 404, "nothing.js"),
    ("/sign_in", 405, "Method Not Allowed"),
    ("/document?id=%3Cscript%3E", 404, "&lt;script&gt;"),
  ],
)
def test_a_browser_is_told_on_a_page_and_a_program_in_json(unchanged, path, status, reason):
  client = client_of(unchanged)
  program, browser, head = client.get(path), client.get(path, headers=PAGE), client.head(path)
  assert program.status_code == browser.status_code == status, program.text
  assert (head.status_code, head.content) == (status, b"")
  assert os.path.dirname(unchanged.path) not in program.text + browser.text
  if reason is None:
    assert browser.json() == program.json()
  else:
    assert reason in browser.text and '<main id="main"' in browser.text
    assert browser.headers["content-type"].startswith("text/html")
  if status != 200 and (reason is None or "q=" not in path):  # the page's own refusal
    assert program.json()["detail"]


MOSS = {"id": "x", "text": "Moss."}


@pytest.mark.parametrize(
  ("path", "body"),
  [
    ("documents", {"documents": []}),
    ("documents", {"documents": ["/etc/passwd"]}),
    ("documents", {"documents": [{**MOSS, "text": "\ud800"}]}),
    ("documents", {"documents": [{**MOSS, "n": [float("nan")]}]}),
    ("documents", {"documents": [MOSS, {**MOSS, "text": "Two."}]}),
    ("documents", {"documents": [MOSS], "mode": "w"}),
    ("feedback", {"question": "moss"}),
    ("feedback", {"question": "moss", "useful": [["fern", 0, 0]]}),
    ("feedback", {"question": "\ud800", "useful": ["fern"]}),
    ("feedback", {"question": "moss", "stars": 5}),
  ],
)
def test_what_makes_no_sense_changes_nothing(unchanged, path, body):
  client, there = client_of(unchanged, TOKEN, body_bytes=200), unchanged.commit.number
  headers = {**BEARER, "content-type": "application/json"}
  sent = {"content": json.dumps(body), "headers": headers}
  response = client.post(f"/api/{path}", **sent)
  assert response.status_code == 422 and response.json()["detail"]
  assert client.post(f"/api/{path}", content=b" " * 201, headers=headers).status_code == 413
  headers["origin"] = "http://evil.example"
  assert client.post(f"/api/{path}", **sent).status_code == 403
  assert unchanged.commit.number == there and unchanged.past_questions() == []


@pytest.mark.parametrize("error", [None, ValueError("an encoder has to be named")])
def test_what_searches_need_is_loaded_before_anybody_is_served(base, monkeypatch, error):
  done = []

  def warm(self):
    done.append("warm")
    if error:
      raise error

  monkeypatch.setattr(KnowledgeBase, "warm", warm)
  monkeypatch.setattr(listening.Listener, "serve", lambda self, app: done.append("served"))
  serve(base, port=0)
  assert done == ["warm", "served"]


def test_feedback_is_for_those_who_know_the_token_and_acts_at_once(base):
  said = {"question": "where is moss", "useful": [["fern", 0]], "not_useful": ["a/moss.txt"]}
  for client in (client_of(base), client_of(base, TOKEN)):
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", "?question=where+is+moss")):
      body = {"json": said} if method == "POST" else {}
      assert client.request(method, f"/api/feedback{path}", **body).status_code == 403
  client = client_of(base, TOKEN)
  assert found(client, q=said["question"]) == ["a/moss.txt"]
  kept = client.post("/api/feedback", json=said, headers=BEARER).json()
  assert kept["useful"] == [["fern", 0]] and kept["not_useful"] == [["a/moss.txt", 0]]
  assert client.get("/api/feedback", headers=BEARER).json() == [kept]
  hits = client.get("/api/search", params={"q": said["question"]}).json()["hits"]
  assert [(hit["id"], hit["useful_for"]) for hit in hits] == [
    ("fern", said["question"]),
    ("a/moss.txt", ""),
  ]
  forget = {"params": {"question": said["question"]}, "headers": BEARER}
  assert client.delete("/api/feedback", **forget).status_code == 204
  assert client.delete("/api/feedback", **forget).status_code == 422
  assert found(client, q=said["question"]) == ["a/moss.txt"]


def test_no_more_is_deleted_than_is_named(base):
  client, question = client_of(base, TOKEN), "where is moss"
  base.feedback(question, useful="fern", not_useful="a/moss.txt")

  def delete(path, **wanted):
    return client.delete(f"/api/{path}", params=wanted, headers=BEARER).status_code

  for wrong in ({"Id": "fern"}, {"passage": 0}, {"id": ""}, {"id": ["fern", "a/moss.txt"]}):
    assert delete("feedback", question=question, **wrong) == 422
  assert delete("document", id=["fern", "a/moss.txt"]) == 422
  assert len(base.past_question(question).judged) == 2 and len(base) == 3
  assert delete("feedback", question=question, id="fern") == 204
  assert [one.id for one in base.past_question(question).judged] == ["a/moss.txt"]


def test_the_page_says_what_is_useful_and_takes_it_back_for_those_who_may_edit(base):
  client, asked = client_of(base, TOKEN), {"q": "shade", "field": "year", "equal": "1960"}
  assert "Not useful" not in client.get("/", params=asked).text
  form = {"q": "shade", "id": "fern", "verdict": "useful", "back": "/?q=shade"}
  assert client.post("/feedback", data=form).status_code == 403
  client.post("/sign_in", data={"token": TOKEN})
  assert "Not useful" in client.get("/", params=asked).text
  after = client.post("/feedback", data=form)
  assert after.url.path == "/" and "Useful for: <bdi>shade</bdi>" in after.text
  page = client.post("/feedback", data={**form, "verdict": "not_useful"}).text
  assert base.past_questions()[0].summary["not_useful"] == [["fern", 0]]
  assert page.index("Said about this question") < page.index('value="take_back"')
  page = client.post("/feedback", data={**form, "verdict": "take_back"}).text
  assert "Said about this question" not in page and base.past_questions() == []
  assert client.post("/feedback", data={**form, "verdict": "take_back"}).status_code == 422
  for back in ("//evil.example", "https://evil.example", "/?q=a\r\nb: c", "/sign_in"):
    assert client.post("/feedback", data={**form, "back": back}).status_code == 422


def test_feedback_about_a_question_that_follows_another_is_about_both(base):
  client = editor_of(base)
  texts = {"g1": "The garden opens in winter.", "g2": "A garden in winter, in winter a garden."}
  base.add([{"id": id, "text": text} for id, text in texts.items()])
  asked = {"q": "and in winter", "after": "where is the garden"}
  assert found(client, **asked)[0] == "g2"
  question = client.get("/api/search", params=asked).json()["asked"]
  assert question == "and in winter garden"
  with client_of(base, generate=lambda *_: "In winter [1].") as other:
    assert other.get("/api/answer", params=asked).json()["asked"] == question
  assert f'name="q" value="{question}"' in client.get("/", params=asked).text
  client.post("/feedback", data={"q": question, "id": "g1", "verdict": "useful"})
  assert found(client, **asked)[0] == "g1" and found(client, q="and in winter")[0] == "g2"
  for params, is_said in ((asked, True), ({"q": "and in winter"}, False)):
    assert ("Said about this question" in client.get("/", params=params).text) == is_said


def test_past_questions_are_listed_and_forgotten_by_those_who_may_edit(base):
  base.feedback("who <b>", useful=["fern", "a/moss.txt"], answer="trees")
  base.feedback("where", not_useful="fern")
  client = client_of(base, TOKEN)
  assert client.get("/questions").status_code == 403
  assert 'href="/questions"' not in client.get("/").text
  client.post("/sign_in", data={"token": TOKEN})
  assert 'href="/questions"' in client.get("/").text
  page = client.get("/questions").text
  assert page.index("where") < page.index("who &lt;b&gt;") and "answered by <bdi>trees" in page
  form = {"q": "who <b>", "id": "fern", "verdict": "take_back", "back": "/questions?first=0"}
  assert client.post("/feedback", data=form).url.path == "/questions"
  assert base.past_question("WHO <b>").summary["useful"] == [["a/moss.txt", 0]]
  client.post("/feedback", data={**form, "verdict": "forget", "id": ""})
  assert [past.question for past in base.past_questions()] == ["where"]
  forgotten = {"question": "where", "id": "fern", "passage": 0}
  assert client.delete("/api/feedback", params=forgotten, headers=BEARER).status_code == 204
  assert "None yet" in client.get("/questions").text
  beyond = client.get("/questions?first=50").text  # as once the last of a page is forgotten
  assert "None yet" not in beyond and 'href="/questions?first=0"' in beyond


def test_more_passages_than_ten_are_a_link_away_up_to_a_hundred(tmp_path):
  texts = [{"id": f"n{n}", "text": "Moss " * (n + 1), "n": n} for n in range(110)]
  client = client_of(KnowledgeBase.create(tmp_path / "kb", texts, language="en"))
  address, shown = "/?q=moss&field=n&least=0", []
  while address:
    page = client.get(address).text
    shown.append(page.count('class="card"'))
    link = re.search(r'href="(/[^"]*)#hit-(\d+)">More', page)
    assert link is None or int(link[2]) == shown[-1] + 1
    address = link and html.unescape(link[1])
  assert shown == [10, 40, 70, 100]
  assert "More" not in client.get("/?q=moss&field=n&most=9").text


def test_a_page_has_the_scores_and_the_probability_of_as_many_passages_as_it_shows(
  tmp_path, monkeypatch
):
  texts = [{"id": f"n{n}", "text": "Moss " * (n + 1), "year": n} for n in range(80)]
  base = KnowledgeBase.create(tmp_path / "kb", texts, language="en")
  scores = [f"{hit.score:.2f}" for hit in base.search("moss", k=70, newer="year:20")]
  page = client_of(base).get("/?q=moss&k=70&newer=year:20").text
  assert re.findall(r'title="score">([^<]*)<', page) == scores
  known = types.SimpleNamespace(is_of=lambda *_: True, is_stale=lambda _: False)
  known.probability = lambda features, k: k / 100
  monkeypatch.setattr(base._folder, "answerability", lambda snapshot: known)
  assert "(10 %)" in client_of(base).get("/?q=moss").text


def test_files_are_uploaded_by_those_who_may_edit(base):
  client = client_of(base, TOKEN)
  files = [
    ("files", ("C:\\texts\\elm.txt", "Elm\nElms die.")),
    ("files", ("../../etc/ash.md", "# Ash\nAn ash is tall.")),
    ("files", ("trees.jsonl.gz", gzip.compress(b'{"id": "oak", "text": "Oaks."}\n{"text": 3}\n'))),
    ("files", ("broken.csv", b"id,text\nyew,\xff\xfe\n")),
  ]
  assert client.post("/upload", files=files).status_code == 403 and len(base) == 3
  client.post("/sign_in", data={"token": TOKEN})
  page = client.post("/upload", files=files)
  assert page.status_code == 200 and "documents: 3 added" in page.text
  assert "trees.jsonl.gz:2" in page.text and "broken.csv" in page.text
  assert base.document("elm.txt").title == "Elm" and "oak" in base and "ash.md" in base
  assert not base.commit.sources, "an upload is no folder that could be read again"
  refused = (
    (("elm.txt", "Elm\nElms live."), "with another content"),
    (("elm.exe", "Elm"), "unknown format"),
    (("elm.jsonl", "{"), "nothing could be read"),
    (("elm.txt.gz", gzip.compress(bytes(2**25))), "nothing could be read"),
    (("", ""), ""),
  )
  for file, reason in refused:
    page = client.post("/upload", files=[("files", file)])
    assert page.status_code == 422 and reason in page.text and len(base) == 6
  page = client.post("/upload", files=[("files", refused[0][0])], data={"replace": "1"})
  assert page.url.path == "/documents" and base.document("elm.txt").text == "Elms live."


def test_a_form_of_an_editor_may_be_larger_than_a_body(base):
  client, text = client_of(base, TOKEN, body_bytes=1000), "Elms give shade. " * 1000
  form = {"action": "add", "id": "elm", "text": text}
  files = {"files": ("elms.txt", text)}
  assert client.post("/documents", data=form).status_code == 413
  assert client.post("/upload", files=files).status_code == 413
  client.post("/sign_in", data={"token": TOKEN})
  assert client.post("/documents", data=form).status_code == 200 and "elm" in base
  assert client.post("/upload", files=files).status_code == 200 and "elms.txt" in base
  large = client.post("/upload", files={"files": ("elms.txt", bytes(2**25 + 1))})
  assert large.status_code == 413 and "33,554,432 bytes" in large.text
  put = {"documents": [{"id": "oak", "text": text}]}
  assert client.post("/api/documents", json=put, headers=BEARER).status_code == 413


def test_an_empty_knowledge_base_says_how_to_add(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb")
  for client, way in (
    (client_of(base), "REALM_EDIT_TOKEN"),
    (client_of(base, TOKEN), "sign in"),
    (signed_in := editor_of(base), 'action="/upload"'),
  ):
    for path in ("/", "/documents", "/?q=moss"):
      page = client.get(path).text
      assert "realm kb add kb FOLDER" in page and way in page
  signed_in.post("/upload", files={"files": ("moss.txt", "Moss\nIt is small.")})
  assert "no documents yet" not in signed_in.get("/documents").text and "moss.txt" in base


def test_head_is_what_get_is_without_the_body(base):
  client = client_of(base)
  for path in ("/", "/?q=shade", "/documents", "/docs", "/health", "/ready", "/api/search?q=moss"):
    head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"] == str(len(got.content))
    assert os.path.dirname(base.path) not in got.text, "nobody is told where it is"


@pytest.mark.parametrize(
  ("error", "status"),
  [
    (OSError(errno.ENOSPC, "No space", "/secret/file"), 507),
    (OSError(errno.EDQUOT, "Quota", "/secret/file"), 507),
    (OSError(errno.EROFS, "Read-only", "/secret/file"), 503),
    (PermissionError(errno.EACCES, "Denied", "/secret/file"), 503),
    (OSError(errno.EIO, "I/O", "/secret/file"), 503),
  ],
)
def test_errors_of_the_disk_are_told_with_their_reason(base, monkeypatch, error, status):
  def fail(*args, **kwargs):
    raise error

  client = client_of(base, TOKEN)
  for name in ("add", "delete", "feedback", "search", "documents"):
    monkeypatch.setattr(base, name, fail)
  elm = {"documents": [{"id": "elm", "text": "Elm."}]}
  for response in (
    client.post("/api/documents", json=elm, headers=BEARER),
    client.delete("/api/document?id=fern", headers=BEARER),
    client.post("/api/feedback", json={"question": "q", "useful": ["fern"]}, headers=BEARER),
    client.get("/api/search?q=moss"),
    client.get("/?q=moss"),
    client.get("/documents"),
  ):
    assert response.status_code == status and int(response.headers["retry-after"]) > 0
    assert os.strerror(error.errno) in response.text and "secret" not in response.text


def test_a_folder_that_is_gone_is_unavailable_and_not_made_anew(base):
  client = client_of(base, TOKEN)
  os.rename(base.path, f"{base.path}-moved")
  elm = {"documents": [{"id": "elm", "text": "Elm."}]}
  said = {"question": "q", "useful": ["fern"]}
  assert client.get("/health").status_code == 200
  for path in ("/ready", "/", "/documents", "/generations", "/api/search?q=moss", "/api/history"):
    response = client.get(path)
    assert response.status_code == 503 and os.path.dirname(base.path) not in response.text
  assert client.post("/api/documents", json=elm, headers=BEARER).status_code == 503
  assert client.post("/api/feedback", json=said, headers=BEARER).status_code == 503
  assert client.delete("/api/feedback?question=q", headers=BEARER).status_code == 503
  assert not os.path.exists(base.path)
  os.rename(f"{base.path}-moved", base.path)
  assert client.get("/ready").status_code == 200


def test_slow_answers_stop_nothing_else_and_are_limited(base):
  asked, told = threading.Semaphore(0), threading.Event()

  def slowly(*_):
    asked.release()
    assert told.wait(30)
    return "Moss [1]."

  with client_of(base, generate=slowly, answers=3) as client:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
      answers = [pool.submit(client.get, "/api/answer?q=moss") for _ in range(3)]
      for _ in answers:
        assert asked.acquire(timeout=30)
      for path in ("/api/answer?q=moss", "/answer?q=moss"):
        busy = client.get(path)
        assert busy.status_code == 503 and int(busy.headers["retry-after"]) > 0
      for path in ("/health", "/ready", "/api/search?q=moss", "/static/icon.svg"):
        assert client.get(path).status_code == 200
      told.set()
      assert {answer.result().status_code for answer in answers} == {200}
    assert client.get("/api/answer?q=moss").status_code == 200


def test_a_list_of_documents_reads_what_it_shows(base, monkeypatch):
  base.add([{"id": "long", "text": "Elms give shade. " * 50_000}])
  read, get = [], Strings.__getitem__
  monkeypatch.setattr(Strings, "__getitem__", lambda s, row: read.append(get(s, row)) or read[-1])
  for path in ("/documents", "/api/documents", "/"):
    assert client_of(base).get(path).status_code == 200
  assert sum(map(len, read)) < 20_000
