"""Requests at random: HTTP answers as Python does, and none ends in an error of ours."""

import concurrent.futures
import gzip
import json
import math
import random
import urllib.parse

import pytest

pytest.importorskip("fastapi")

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web.knowledge_base.forms import record
from tests.web.exchanges import TOKEN, WORDS, body_of, exchange, head, made, post, served, status_of

TEXTS = (
  *("", " ", "moss", "Moss fern", "shade\x00", "\u202e", "e\u0301", "\ufeff", "a/b?c#d%2f", ".."),
  *("<script>", "x" * 3000, "\ud800", "-1", "null", '"', "\\", "\r\n", "🚀", "&q=fern", "日本語"),
)
NUMBERS = (0, -0.0, 1, -1, 2, 1.5, 1e308, 10**30, 10**400, math.nan, math.inf)
TOKENS = ("Authorization: Bearer " + TOKEN, "Connection: close")


def any_json(draw, depth=0):
  """Returns something that JSON has, or that Python writes as if it had."""
  match draw.randrange(7 if depth < 3 else 5):
    case 0:
      return draw.choice(NUMBERS)
    case 1:
      return draw.choice((None, True, False))
    case 2 | 3 | 4:
      return draw.choice((*TEXTS, *WORDS))
    case 5:
      return [any_json(draw, depth + 1) for _ in range(draw.randrange(4))]
    case _:
      names = draw.sample((*TEXTS, "id", "text", "title", "n", "gte"), draw.randrange(4))
      return {name: any_json(draw, depth + 1) for name in names}


def some_id(draw):
  return draw.choice((f"d{draw.randrange(40)}", draw.choice(TEXTS)))


def some_document(draw):
  document = {"id": f"d{draw.randrange(40)}", "text": " ".join(draw.choices(WORDS, k=6))}
  for _ in range(draw.choice((0, 0, 1, 2))):
    document[draw.choice(("id", "text", "title", "n", "kind", "page", ""))] = any_json(draw)
  return document


def some_where(draw):
  name, value = draw.choice(("n", "n", "kind", "missing", "")), any_json(draw)
  side = draw.choice(("gte", "lt", "ne", "nin", "exists", "other"))
  few = ({}, {}, {name: value}, {name: {side: value}}, {name: draw.randrange(5)}, value)
  return draw.choice(few)


def query(**values):
  return urllib.parse.urlencode(values, errors="surrogatepass")


def outcome(function, *values, **options):
  try:
    return 200, function(*values, **options)
  except ValueError:
    return 422, None


def search(base, question, k, where):
  return [hit_of(vars(hit)) for hit in base.search(question, k=k, where=as_sent(where))]


def hit_of(fields):
  return [fields[name] for name in ("id", "score", "text", "passage", "start", "fields")]


def is_unicode(text):
  return text.encode(errors="replace").decode() == text


def as_sent(value):
  """Returns what a client may send: JSON without NaN, of text that is Unicode."""
  return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("seed", range(2))
def test_http_answers_as_python_does(tmp_path, seed):
  draw, mirror = random.Random(seed), made(tmp_path / "mirror")
  address = served(made(tmp_path / "kb"))
  for _ in range(150):
    id, expected = some_id(draw), None
    match draw.randrange(6):
      case 0 | 1:
        documents, change = [some_document(draw)], draw.choice((mirror.add, mirror.update))
        given = {"documents": documents, "replace": change == mirror.update}
        content = json.dumps(given).encode()
        request = post("/api/documents", len(content), "Connection: close") + content
        status, changes = outcome(lambda change, sent: change(as_sent(sent)), change, documents)
        expected = changes and vars(changes)
      case 2:
        request = head("DELETE", "/api/document?" + query(id=id), *TOKENS)
        status = 204 if is_unicode(id) and mirror.document(id) else 404
        if status == 204:
          mirror.delete(id)
      case 3:
        request = head("GET", "/api/document?" + query(id=id), *TOKENS)
        there = mirror.document(id) if is_unicode(id) else None
        status, expected = (200, record(there)) if there else (404, None)
      case _:
        q, k = " ".join(draw.choices((*WORDS, *TEXTS), k=3)), draw.choice((1, 3, 100))
        where = some_where(draw)
        asked = query(q=q, k=k, where=json.dumps(where))
        request = head("GET", "/api/search?" + asked, *TOKENS)
        as_read = q.encode("utf-8", "surrogatepass").decode(errors="replace")
        if len(as_read) > 2000 or not isinstance(where, dict):
          status = 422
        else:
          status, expected = outcome(search, mirror, as_read, k, where)
    response = exchange(address, request)
    assert status_of(response) == status, (request, response)
    if status == 200:
      found = body_of(response)
      if "hits" in found:
        found = [*map(hit_of, found["hits"])]
      assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True), request


METHODS = "GET GET GET POST POST POST DELETE HEAD PUT OPTIONS TRACE gEt".split()
PATHS = (
  "/ /answer /api/search /api/answer /api/document /api/documents /api/feedback /api/history "
  "/documents /document /feedback /questions /generations /upload /sign_in /sign_out /docs /ready "
  "/openapi.json /static/inspector.css /static/../x //api/search * http://a/health /%ff"
).split()
NAMES = "q k where id by min_answerable newer explain first count passage question zz".split()
KINDS = (
  *("application/json", "application/json", "application/json; charset=utf-16", "text/plain", ""),
  *("application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "application/ld+json"),
)
HEADERS = (
  (TOKENS[0], TOKENS[0], "Authorization: Bearer \xe9", "Cookie: realm_editor=\xe9;;="),
  ("Accept: text/html", "Accept: */*", "Range: bytes=0-1", "Expect: 100-continue"),
  ("X: y", "X: y", "Origin: http://localhost", "Origin: x://", "Origin: null"),
  ("Upgrade: h2c", "If-None-Match: *", "Content-Encoding: gzip", "X: " + "y" * 9000),
)
PART = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jsonl"\r\n\r\n{"id": 1'


def any_request(draw):
  """Returns a request that may be of a client, a broken proxy, a scanner or nobody."""
  given = {name: draw.choice((any_json(draw), *TEXTS)) for name in draw.sample(NAMES, 3)}
  path = draw.choice(PATHS) + draw.choice(("?", "?", "?", "")) + query(**given)
  documents = {"documents": [some_document(draw)], "replace": any_json(draw)}
  form = {"action": "add", "id": some_id(draw), "text": "moss", "fields": any_json(draw)}
  content = draw.choice(
    (
      json.dumps(any_json(draw)).encode(),
      json.dumps(documents).encode(),
      json.dumps({"question": any_json(draw), "useful": any_json(draw), "answer": "x"}).encode(),
      json.dumps(documents).encode("utf-16"),
      gzip.compress(b'{"documents": []}'),
      *(query(**form).encode(), PART, PART + b"}\r\n--b--\r\n", draw.randbytes(40), b""),
    )
  )
  lines = ["Connection: close", f"Content-Type: {draw.choice(KINDS)}", *map(draw.choice, HEADERS)]
  match draw.randrange(8):
    case 0:
      lines.append("Transfer-Encoding: chunked")
      content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    case 1:
      lines.append(f"Content-Length: {draw.choice((-1, 0, len(content) + 1, 10**20, 'x'))}")
    case 2:
      pass
    case _:
      lines.append(f"Content-Length: {len(content)}")
  sent = head(draw.choice(METHODS), path, *draw.sample(lines, len(lines)))
  sent = sent.replace(b"\xc3\xa9", b"\xe9") + content
  if draw.random() < 0.1:
    sent = bytearray(sent)
    for _ in range(draw.randrange(1, 4)):
      sent[draw.randrange(len(sent))] = draw.randrange(256)
  return bytes(sent[: draw.randrange(len(sent))] if draw.random() < 0.1 else sent)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_that_is_sent_ends_in_an_error_or_changes_what_was_acknowledged(tmp_path, seed):
  base = made(tmp_path / "kb")
  address, kept = served(base), {}

  def client(number):
    draw = random.Random(f"{seed} {number}")
    for n in range(40):
      if draw.random() < 0.7:
        response = exchange(address, any_request(draw), half=True)
        assert not response or status_of(response) < 500 or status_of(response) == 503, response
        continue
      id, text = f"client {number}/{draw.randrange(5)}", " ".join(draw.choices(WORDS, k=9))
      content = json.dumps({"documents": [{"id": id, "text": text}], "replace": True}).encode()
      change = post("/api/documents", len(content), "Connection: close") + content
      if n % 3 == 0:
        change, text = head("DELETE", "/api/document?" + query(id=id), *TOKENS), None
      status = status_of(exchange(address, change))
      assert status in (200, 204, 404, 409, 503)
      if status in (200, 204):
        kept[id] = text

  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    [*pool.map(client, range(4))]
  opened = KnowledgeBase(base.path)
  for id, text in kept.items():
    document = opened.document(id)
    assert (document and document.text) == text
  for word in WORDS:
    asked = head("GET", "/api/search?" + query(q=word, k=100), *TOKENS)
    hits = [*map(hit_of, body_of(exchange(address, asked))["hits"])]
    assert hits == search(opened, word, 100, {})
