"""A knowledge base that is served in a thread, and requests to it byte by byte."""

import contextlib
import json
import queue
import random
import socket
import threading
import time

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web import listening
from realm_jax.web.knowledge_base.pages import make_app
from realm_jax.web.listening import LimitSettings

TOKEN = "a token that nobody guesses"
WORDS = "moss fern alga lichen sedge heath shade wet old tree".split()


def made(path):
  draw = random.Random(0)
  texts = [" ".join(draw.choices(WORDS, k=20)) for _ in range(30)]
  documents = [{"id": f"d{n}", "text": text, "n": n % 5} for n, text in enumerate(texts)]
  return KnowledgeBase.create(path, documents, language="en")


def served(base):
  told = queue.SimpleQueue()

  def serve():
    with listening.listening("127.0.0.1", 0) as listener:
      told.put(listener._socket.getsockname())
      listener.serve(make_app(base, edit_token=TOKEN, limits=LimitSettings(hosts=())))

  threading.Thread(target=serve, daemon=True).start()
  address = told.get(timeout=30)
  deadline = time.monotonic() + 30
  while True:
    try:
      socket.create_connection(address, 1).close()
      return address
    except OSError:
      assert time.monotonic() < deadline
      time.sleep(0.01)


def head(method, path, *lines):
  return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def post(path, size, *lines):
  own = (f"Authorization: Bearer {TOKEN}", f"Content-Length: {size}")
  return head("POST", path, *own, "Content-Type: application/json", *lines)


def received(connection):
  parts = []
  with contextlib.suppress(ConnectionError):
    while part := connection.recv(65536):
      parts.append(part)
  return b"".join(parts)


def exchange(address, content, *, half=False, timeout=40):
  with socket.create_connection(address, timeout) as connection:
    with contextlib.suppress(ConnectionError):
      connection.sendall(content)
      if half:
        connection.shutdown(socket.SHUT_WR)
    return received(connection)


def status_of(response):
  return int(response.split(None, 2)[1])


def body_of(response):
  return json.loads(response.partition(b"\r\n\r\n")[2])
