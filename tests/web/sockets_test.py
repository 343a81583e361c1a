"""What clients send a served knowledge base byte by byte: late, cut short, redirected."""

import contextlib
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("fastapi")

from realm_jax.web import application, listening
from tests.web.exchanges import (
  TOKEN,
  body_of,
  exchange,
  head,
  made,
  post,
  received,
  served,
  status_of,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
  return made(tmp_path_factory.mktemp("sockets") / "kb")


@pytest.fixture(scope="module")
def address(base):
  return served(base)


@pytest.mark.parametrize(
  "begun",
  [b"", b"G", b"GET / HTTP/1.1\r\n", head("GET", "/health") + b"GET / HT", head("GET", "/health")],
  ids=["nothing", "a letter", "a line", "a second request", "one request"],
)
def test_a_connection_without_a_whole_request_is_closed(base, monkeypatch, begun):
  monkeypatch.setattr(listening, "SLOWEST", 1)
  address = served(base)
  with socket.create_connection(address, 20) as connection:
    started = time.monotonic()
    connection.sendall(begun)
    with contextlib.suppress(OSError):
      while b"Host" not in begun and time.monotonic() - started < 10:
        connection.sendall(b"x")  # which does not buy more time
        time.sleep(0.1)
    received(connection)
    assert time.monotonic() - started < 9
  assert status_of(exchange(address, head("GET", "/health", "Connection: close"))) == 200


def test_a_body_that_stops_coming_is_refused(base, monkeypatch):
  monkeypatch.setattr(application, "SLOWEST", 1)
  response = exchange(served(base), post("/api/documents", 100) + b'{"documents"')
  assert status_of(response) == 408 and "nothing of the body" in body_of(response)["detail"]


# As in a notebook, whose cells run in an event loop.
PROGRAM = f"""
import asyncio, sys, time
import realm_jax
from realm_jax.web import listening

def generate(*_):
  print("asked", flush=True)
  time.sleep(1)
  return "Moss [1]."

async def cell():
  listening._STOPPING = 3
  realm_jax.serve(sys.argv[1], port=0, edit_token={TOKEN!r}, generate=generate)

asyncio.run(cell())
sys.exit(not {{"jax", "tensorflow"}}.isdisjoint(sys.modules))
"""


def test_a_server_that_stops_answers_what_it_was_asked_and_tells_who_is_sending(base):
  """As a process, because a signal ends it, of a Python that leaves out docstrings."""
  pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
  with subprocess.Popen([sys.executable, "-OO", "-c", PROGRAM, base.path], **pipes) as server:
    assert server.stdout and server.stderr
    try:
      host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
      with (
        socket.create_connection((host, int(port)), 20) as sending,
        socket.create_connection((host, int(port)), 20) as asking,
      ):
        sending.sendall(post("/api/documents", 100).replace(b"localhost", host.encode(), 1) + b"{")
        for path in ("/?q=moss", "/docs"):
          page = head("GET", path, "Connection: close").replace(b"localhost", host.encode(), 1)
          assert status_of(exchange((host, int(port)), page)) == 200
        asked = head("GET", "/api/answer?q=moss").replace(b"localhost", host.encode(), 1)
        asking.sendall(asked)
        assert server.stdout.readline() == "asked\n"
        server.send_signal(signal.SIGTERM)
        answer, response = received(asking), received(sending)
      assert status_of(answer) == 200 and body_of(answer)["text"] == "Moss [1]."
      assert status_of(response) == 503 and "stopping" in body_of(response)["detail"]
      assert server.wait(20) == 0 and "Traceback" not in server.stderr.read()
    finally:
      server.kill()


def test_no_redirect_leads_from_https_to_http(address):
  for path in ("/documents/", "/api/search/?q=moss", "/api/documents/"):
    assert status_of(exchange(address, head("GET", path, "Connection: close"))) == 404


@pytest.mark.parametrize(
  "origin, host, status",
  [
    ("http://kb.example", "kb.example", 200),
    ("https://kb.example", "kb.example", 200),
    ("https://kb.example", "kb.example:443", 200),
    ("http://kb.example", "KB.example:80", 200),
    ("https://kb.example:8443", "kb.example:8443", 200),
    ("http://kb.example", "kb.example:443", 403),
    ("https://kb.example:8443", "kb.example", 403),
    ("https://kb.example.evil", "kb.example", 403),
    ("https://evil", "kb.example:443", 403),
    ("null", "null.example", 403),
    ("null", "", 403),
  ],
)
def test_forms_come_from_pages_of_the_host_whatever_its_default_port(address, origin, host, status):
  content = b'{"documents": [{"id": "new", "text": "x"}], "replace": true}'
  lines = (f"Origin: {origin}", "Connection: close")
  request = post("/api/documents", len(content), *lines).replace(b"localhost", host.encode(), 1)
  assert status_of(exchange(address, request + content)) == status


@pytest.mark.parametrize(
  "content, reason",
  [
    ('{"documents": [{"id": "a", "id": "b", "text": "x"}]}', "'id' twice"),
    ('{"documents": [{"id": "a", "text": "x", "n": %s}]}' % ("9" * 5000), "4,300 digits"),
    ("[" * 50_000, "nested too deep"),
    ("{", "no JSON"),
    ('{"documents": [{"id": "a", "text": "\xff"}]}'.encode("latin-1"), "no JSON"),
  ],
)
def test_what_is_wrong_with_json_is_told(address, content, reason):
  content = content if isinstance(content, bytes) else content.encode()
  response = exchange(address, post("/api/documents", len(content), "Connection: close") + content)
  assert status_of(response) == 422 and reason in body_of(response)["detail"]
