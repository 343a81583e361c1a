"""The application: pages, API, edits of sessions, and what is refused."""

import concurrent.futures
import html.parser
import json
import threading

import pytest

fastapi = pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")

from realm_jax.answering.mask_filler import MaskFiller  # noqa: E402
from realm_jax.web.application import Example  # noqa: E402
from realm_jax.web.inspector.pages import make_app  # noqa: E402
from realm_jax.web.inspector.service import AnsweringService  # noqa: E402
from realm_jax.web.listening import LimitSettings  # noqa: E402

QUERY = "[MASK] is the money of Britain"
QUESTION = "what is the money of Britain"
HOSTILE = "<script>alert('x')</script>\"&"


def client_of(service, **limits):
  examples = [Example(text=QUERY, answer="pound")]
  app = make_app(service, limits=LimitSettings(**limits), examples=examples)
  # An error of ours would be raised here instead of becoming a 500.
  return testclient.TestClient(app, base_url="http://localhost")


@pytest.fixture
def client(service):
  return client_of(service)


def ask(client, text=QUERY, **more):
  response = client.post("/api/fill_mask", json={"texts": [text], **more})
  assert response.status_code == 200, response.text
  return response.json()["explanations"][0]


def test_the_api_explains_an_answer(client):
  explanation = ask(client, rankings=True)
  assert explanation["likeliest"] == "Pound"
  assert explanation["passages"][0]["spans"] == [[0, 5]]
  assert [r["generation"] for r in explanation["rankings"]] == [0, 1]
  assert client.get("/api/model").json() == {"asks_for": "mask", "step": 20, "generation": 1}


def test_an_edit_changes_the_answer_of_its_session_alone(service):
  one, other = client_of(service), client_of(service)
  edited = {"title": "Britain", "text": "Euro is the money of Britain"}
  assert one.put("/api/passages/0", json=edited).json()["edited"]
  assert ask(one)["likeliest"] == "Euro"
  assert ask(other)["likeliest"] == "Pound"
  assert one.get("/api/passages/0").json()["text"] == edited["text"]
  assert [edit["kind"] for edit in one.get("/api/edits").json()] == ["changed"]
  assert one.delete("/api/edits").status_code == 204
  assert ask(one)["likeliest"] == "Pound"


def test_passages_are_added_and_removed(client):
  added = client.post("/api/passages", json={"text": "Yen is the money of Britain"})
  assert (added.status_code, added.json()["passage_id"]) == (201, 4)
  assert 4 in [p["passage_id"] for p in ask(client)["passages"]]
  for passage_id in (4, 0):
    assert client.delete(f"/api/passages/{passage_id}").status_code == 204
    assert client.get(f"/api/passages/{passage_id}").status_code == 404
  assert 0 not in [p["passage_id"] for p in ask(client)["passages"]]
  assert client.delete("/api/edits/0").status_code == 204
  assert ask(client)["likeliest"] == "Pound"


def test_the_page_works_without_scripts(client):
  page = client.get("/", params={"q": QUERY})
  assert page.status_code == 200
  for part in ("<mark>Pound</mark>", "Null passage", "Ranks by generation", 'lang="en"'):
    assert part in page.text
  fields = {"action": "change", "passage_id": "0", "title": "Britain", "q": QUERY}
  after = client.post("/edit", data={**fields, "text": "Dollar is the money of Britain"})
  assert after.status_code == 200 and "<mark>Dollar</mark>" in after.text
  refused = client.post("/edit", data={**fields, "text": " "})
  assert refused.status_code == 422 and "needs text" in refused.text


def test_a_model_that_answers_questions_does_so_after_edits_and_refuses_masks(answerer):
  client = client_of(AnsweringService(answerer))
  response = client.post("/api/answer", json={"texts": [QUESTION], "rankings": True})
  (explanation,) = response.json()["explanations"]
  assert explanation["likeliest"] == "Pound" and explanation["null_share"] is None
  assert explanation["passages"][0]["spans"] == [[0, 5]] and len(explanation["rankings"]) == 2
  assert client.get("/api/model").json()["asks_for"] == "question"
  edited = {"title": "Britain", "text": "Euro is the money of Britain"}
  client.put("/api/passages/0", json=edited)
  page = client.get("/", params={"q": QUESTION}).text
  assert page.count('class="filled"') == 1 and "<mark>Euro</mark>" in page
  assert "without retrieval" not in page and "utility" not in page
  for text in (QUERY, ""):
    assert client.post("/api/answer", json={"texts": [text]}).status_code == 422
  page = client.get("/", params={"q": QUERY})
  assert page.status_code == 422 and "this model answers questions" in page.text


def test_a_model_that_fills_masks_says_so(client):
  assert client.post("/api/fill_mask", json={"texts": [QUESTION]}).status_code == 422
  assert "has 0 [MASK]" in client.get("/", params={"q": QUESTION}).text


@pytest.mark.parametrize(
  ("answer", "in_attribute"),
  [("<pound>", f"{QUERY} {HOSTILE}"), ("pound", HOSTILE)],  # of a refusal; of a passage
)
def test_what_is_typed_or_stored_is_escaped(client, answer, in_attribute):
  for place, title, text in ((0, HOSTILE, "Pound Britain"), (3, "Old", f"Pound {HOSTILE} Britain")):
    stored = client.put(f"/api/passages/{place}", json={"title": title, "text": text})
    assert stored.status_code == 200, stored.text
  page = client.get("/", params={"q": f"{QUERY} {HOSTILE}", "answer": answer})
  assert HOSTILE not in page.text and page.text.count("<script") == 1
  assert "&lt;script&gt;" in page.text
  values, parser = [], html.parser.HTMLParser()
  parser.handle_starttag = lambda tag, attributes: values.extend(dict(attributes).values())
  parser.feed(page.text)
  assert in_attribute in values


def test_nothing_is_asked_of_another_machine(client):
  page = client.get("/", params={"q": QUERY})
  policy = page.headers["content-security-policy"]
  assert "default-src 'none'" in policy and "http" not in policy and "unsafe" not in policy
  for path in ("/docs", "/static/inspector.css", "/static/inspector.js"):
    text = (
      client.get(path).text.replace("http://127.0.0.1:8082", "").replace("http://www.w3.org", "")
    )
    assert "http://" not in text and "https://" not in text and "@import" not in text
  assert "/api/fill_mask" in client.get("/docs").text


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
  ("method", "path", "body", "headers", "status"),
  [
    ("POST", "/api/fill_mask", b"{", JSON, 422),
    ("POST", "/api/fill_mask", b"\xff\xfe", JSON, 422),
    ("POST", "/api/fill_mask", b'{"texts": ["\\ud800 [MASK]"]}', JSON, 422),
    ("POST", "/api/fill_mask", b'{"texts": []}', JSON, 422),
    ("POST", "/api/fill_mask", b'{"texts": [%s"[MASK]"]}' % (16 * b'"[MASK]",'), JSON, 422),
    ("POST", "/api/fill_mask", b'{"texts": ["[MASK]"], "other": 1}', JSON, 422),
    ("POST", "/api/fill_mask", b'{"texts": ["[MASK]"], "target": "<>/()"}', JSON, 422),
    ("POST", "/api/fill_mask", b"{}", {"content-type": "text/plain"}, 422),
    ("POST", "/api/fill_mask", b"{}", {**JSON, "origin": "http://evil.example"}, 403),
    ("POST", "/api/fill_mask", b"[" * 60_000, JSON, 400),
    ("POST", "/api/fill_mask", b" " * 10_000_000, JSON, 413),
    ("PUT", "/api/passages/99", b'{"text": "old"}', JSON, 404),
    ("PUT", "/api/passages/0", b'{"text": ""}', JSON, 422),
    ("DELETE", "/api/passages/99999999999999999999", b"", {}, 422),
    ("POST", "/edit", b"action=fly&passage_id=1", {"content-type": ""}, 422),
    ("GET", "/static/../inspector.py", b"", {}, 404),
    ("GET", "/?q=" + "a" * 3000, b"", {}, 422),
    ("GET", "/", b"", {"cookie": "realm_session=../../x"}, 200),
    ("GET", "/", b"", {"host": "evil.example"}, 400),
  ],
)
def test_what_cannot_be_answered_is_refused_with_4xx(service, method, path, body, headers, status):
  client = client_of(service, hosts=("localhost",))
  response = client.request(method, path, content=body, headers=headers)
  assert response.status_code == status, response.text
  if status in (404, 413, 422) and "html" not in response.headers["content-type"]:
    assert json.loads(response.text)["detail"]


@pytest.mark.parametrize(
  "fields",
  [
    {"action": "fly", "passage_id": "0"},
    {"action": "change", "passage_id": "-1", "text": "x"},
    {"action": "change", "passage_id": "²", "text": "x"},
    {"action": "remove", "passage_id": "7"},
    {"action": "remove"},
    {},
    {str(i): "x" for i in range(30)},
  ],
)
def test_forms_that_nobody_made_are_refused(client, fields):
  assert client.post("/edit", data=fields or {"q": ""}).status_code in (404, 422)


def test_a_request_is_answered_while_another_is(service, monkeypatch):
  both, explain = threading.Barrier(2, timeout=20), MaskFiller.explain

  def explain_together(*args, **keywords):
    both.wait()  # raises if the other request has to wait for this one
    return explain(*args, **keywords)

  monkeypatch.setattr(MaskFiller, "explain", explain_together)
  clients = [client_of(service) for _ in range(2)]
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    assert list(pool.map(lambda client: ask(client)["likeliest"], clients)) == ["Pound", "Pound"]


def test_too_many_edits_are_refused(client):
  for _ in range(200):
    assert client.post("/api/passages", json={"text": "old"}).status_code == 201
  refused = client.post("/api/passages", json={"text": "old"})
  assert refused.status_code == 422 and "more than 200 edits" in refused.text


class Directions(html.parser.HTMLParser):
  """Collects whether each text, and what a user types, stands where its direction is its own."""

  def __init__(self):
    super().__init__()
    self._open, self.texts, self.fields = [], [], []

  def handle_starttag(self, tag, attrs):
    own = tag == "bdi" or "dir" in dict(attrs)
    if tag in ("textarea", "input") and dict(attrs).get("type") != "hidden":
      self.fields.append(own)
    if tag not in ("input", "meta", "link", "br", "img"):
      self._open.append((tag, own))

  def handle_endtag(self, tag):
    while self._open and self._open.pop()[0] != tag:
      pass

  def handle_data(self, data):
    if "جنيه" in data and self._open[-1][0] != "title":
      self.texts.append((data, any(own for _, own in self._open)))


def test_text_from_right_to_left_keeps_its_direction(client):
  edited = {"title": "جنيه", "text": "جنيه is the money of Britain"}
  assert client.put("/api/passages/0", json=edited).json()["edited"]
  page = client.get("/", params={"q": "[MASK] is the money of Britain جنيه"})
  directions = Directions()
  directions.feed(page.text)
  assert len(directions.texts) >= 4
  assert [data for data, own in directions.texts if not own] == []
  assert directions.fields and all(directions.fields)
