"""Answers that are shown as a language model writes them."""

import codecs
import contextlib
import http.client
import http.server
import json
import threading
import time
import urllib.parse

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is missing")

from realm_jax.knowledge_base import language_model
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.language_model import ChatServer, GeneratorError
from realm_jax.web import streams
from realm_jax.web.knowledge_base.pages import make_app
from realm_jax.web.listening import LimitSettings
from tests.web.browsing import served

PARTS = ["<think>Hm.</think>", "Moss ", "grows", " [1]."]


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", [{"id": "moss", "text": "Moss grows in the shade."}])


@contextlib.contextmanager
def writing(parts, *, pause=0.0, ends=True):
  """Serves a model that sends parts of an answer; yields its address, and what became of it."""
  seen = {"asked": [], "left": threading.Event()}

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
      seen["asked"].append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
      self.send_response(200)
      self.send_header("content-type", "text/event-stream; charset=utf-8")
      self.end_headers()
      try:
        for part in parts:
          self.event(json.dumps({"choices": [{"delta": {"content": part}}]}))
          time.sleep(pause)
        for _ in range(1 if ends else 0):
          self.event('{"choices": []}')
          self.event("[DONE]")
      except OSError:
        seen["left"].set()

    def event(self, data):
      self.wfile.write(f": a comment\r\ndata: {data}\r\n\r\n".encode())

    def log_message(self, *args):
      del args

  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
  threading.Thread(target=server.serve_forever, args=(0.01,)).start()
  try:
    yield f"http://127.0.0.1:{server.server_port}/v1", seen
  finally:
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def asked(address, path, accept="text/event-stream"):
  connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=30)
  connection.request("GET", f"{path}?q=moss", headers={"accept": accept})
  try:
    yield connection.getresponse()
  finally:
    connection.close()


def read(response):
  """Yields names and data of events, and when they came."""
  name = ""
  for line in response:
    kind, _, data = line.decode().strip().partition(": ")
    if kind == "event":
      name = data
    elif kind == "data":
      yield name, json.loads(data), time.monotonic()


@pytest.mark.parametrize("path", ["/api/answer", "/answer"])
def test_an_answer_comes_as_it_is_written_and_then_whole(base, path):
  with (
    writing(PARTS, pause=0.4) as (url, seen),
    served(make_app(base, generate=ChatServer(url, "m"))) as address,
  ):
    with asked(address, path) as response:
      assert response.headers["content-type"].startswith("text/event-stream")
      *texts, (name, last, ended) = read(response)
    assert seen["asked"][0]["stream"] is True
    assert "".join(data["text"] for _, data, _ in texts) == "Moss grows [1]."
    assert len(texts) == 3 and not any(data["replaces"] for _, data, _ in texts)
    assert ended - texts[0][2] > 0.6  # the first was there long before the last
    if path == "/answer":
      assert name == "page" and "Moss grows [1].</p>" in last and "Careful" not in last
    else:
      assert (name, last["text"], last["cited"]) == ("answer", "Moss grows [1].", [0])
    with asked(address, "/api/answer", "*/*") as response:  # and who wants no events gets none
      assert json.load(response)["cited"] == [0]


def test_what_is_not_found_is_never_shown(base):
  parts = ["N", "OT ", "FOU", "ND"]
  with (
    writing(parts, pause=0.05) as (url, _),
    served(make_app(base, generate=ChatServer(url, "m"))) as address,
  ):
    with asked(address, "/api/answer") as response:
      ((name, last, _),) = read(response)
    assert name == "answer" and not last["text"]
  assert [language_model.so_far(t) for t in ("<thi", "<think>a", "not", "No moss")] == [
    "",
    "",
    "",
    "No moss",
  ]


def test_what_breaks_off_is_no_answer(base):
  with writing(["Moss grows"], ends=False, pause=0.4) as (url, _):
    with pytest.raises(GeneratorError, match="broke off after 10 characters"):
      base.answer("moss", generate=ChatServer(url, "m", told=lambda _: None))
    with served(make_app(base, generate=ChatServer(url, "m"))) as address:
      with asked(address, "/api/answer") as response:
        (first, _, _), (name, error, _) = read(response)
      assert (first, name, error["status"]) == ("text", "error", 502)
      assert "broke off" in error["detail"]


@pytest.mark.parametrize(
  "event",
  [
    '{"usage": {"total_tokens": 9}}',
    '{"choices": null}',
    '{"choices": [{"index": 0, "finish_reason": null, "content_filter_results": {}}]}',
    '{"choices": [{"index": 0, "finish_reason": null, "delta": null}], "error": null}',
  ],
)
def test_an_event_without_a_part_of_the_answer_is_none(event):
  stream = language_model._Stream()
  part, end = ('{"choices": [{"delta": {"content": "Moss [1]."}}]}', "[DONE]")
  for data in (event, part, event, end):
    stream.take(f"data: {data}\n\n".encode())
  assert (stream.text, stream.ended) == ("Moss [1].", True)


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_lines_end_as_events_allow_and_characters_may_be_divided(ends):
  parts = [rb'{"choices": [{"delta": {"content": "Moss \ud83c"}}]}']
  parts += [rb'{"choices": [{"delta": {"content": "\udf31 \u00e9\u20ac."}}]}', b"[DONE]"]
  content = codecs.BOM_UTF8 + b"".join(b"data: " + part + 2 * ends for part in parts)
  stream = language_model._Stream()
  for byte in content:
    stream.take(bytes([byte]))
    stream.news().encode()
  assert stream.ended and stream.completion["choices"][0]["message"]["content"] == "Moss 🌱 é€."


@pytest.mark.parametrize("key", ["error", "message", "detail"])
def test_an_event_that_refuses_is_told(key):
  with pytest.raises(ValueError, match="out of memory"):
    language_model._Stream().take(f'data: {{"{key}": "out of memory"}}\n'.encode())


def test_before_the_first_event_errors_have_their_status(base):
  app = make_app(base, generate=ChatServer("http://127.0.0.1:1/v1", "m"))
  with served(app) as address, asked(address, "/api/answer") as response:
    assert response.status == 502 and "refused" in json.load(response)["detail"]


def test_while_nothing_is_written_there_are_comments(base, monkeypatch):
  """Without them, a proxy takes the connection for a dead one."""
  monkeypatch.setattr(streams, "_SILENT", 0.3)
  parts = ["<think>Hm.", "</think>Moss ", "grows [1]."]
  with (
    writing(parts, pause=1.0) as (url, _),
    served(make_app(base, generate=ChatServer(url, "m"))) as address,
    asked(address, "/api/answer") as response,
  ):
    lines = response.read().decode().splitlines()
  events = [line for line in lines if line.startswith(("event", ":"))]
  assert events[0] == ": wait" and events[-1] == "event: answer"
  assert ": wait" in events[events.index("event: text") :]


@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_that_does_not_stream_answers_as_before(base, monkeypatch, refuses):
  reply, sent = {"choices": [{"message": {"content": "Moss [1]."}}]}, []

  def send(server, path, body, *, deadline):
    sent.append(body)
    if refuses and "stream" in body:
      error = server._refused("HTTP 400")
      error.status = 400
      raise error
    return reply

  monkeypatch.setattr(ChatServer, "_send", send)
  app = make_app(base, generate=ChatServer("http://127.0.0.1:1/v1", "m"))
  with served(app) as address, asked(address, "/api/answer") as response:
    ((name, last, _),) = read(response)
  assert (name, last["text"], last["cited"]) == ("answer", "Moss [1].", [0])
  assert ["stream" in body for body in sent] == [True, False][: 1 + refuses]


@pytest.mark.parametrize(
  ("parts", "pause"),
  [(["Moss "] * 200, 0.1), (["<think>", *["Hm. "] * 200], 0.1), (["Moss "] * 2, 6.0)],
)
def test_a_client_that_leaves_ends_the_request_and_frees_its_turn(base, parts, pause):
  """Also before anything is shown, and while the model is silent."""
  with writing(parts, pause=pause) as (url, seen):
    app = make_app(base, generate=ChatServer(url, "m"), limits=LimitSettings(answers=1))
    with served(app) as address:
      connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc)
      connection.request("GET", "/api/answer?q=moss", headers={"accept": "text/event-stream"})
      while not seen["asked"]:
        time.sleep(0.01)
      time.sleep(0.5)
      with asked(address, "/api/answer") as response:  # the turn is taken
        assert response.status == 503
      connection.sock.close()
      connection.close()
      time.sleep(2)
      parts.clear()
      with asked(address, "/api/answer") as response:
        assert response.status == 502 and "no text" in json.load(response)["detail"]
      assert seen["left"].wait(10)
