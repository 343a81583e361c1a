"""Tools of a knowledge base, used by the SDK's own client over stdio and HTTP."""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading

import pytest

mcp = pytest.importorskip("mcp")
httpx = pytest.importorskip("httpx2")
pytestmark = pytest.mark.interop

from mcp.client.streamable_http import streamable_http_client  # noqa: E402

from realm_jax import main  # noqa: E402
from realm_jax.devices.directory_lock import hold  # noqa: E402
from realm_jax.knowledge_base.folder import KIND  # noqa: E402
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase  # noqa: E402
from realm_jax.web import listening  # noqa: E402
from realm_jax.web.knowledge_base import mcp_server  # noqa: E402
from tests.knowledge_base import tiny_models  # noqa: E402
from tests.knowledge_base.answerability_test import KNOWN, UNKNOWN, trained  # noqa: E402, F401

NOTES = [
  {"id": "a/moss.txt", "title": "Moss", "text": "Moss grows in the shade.", "year": 1958},
  {"id": "fern", "text": "Ferns grow in the shade of trees.", "year": 1960},
  {"id": "long", "text": "Trees. " * 5_000},
]
ENVIRONMENT = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
TOKEN = "a token that nobody guesses"


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", NOTES, language="en")


def command(base, *flags):
  return [sys.executable, "-m", "realm_jax.main", "kb", "mcp", base.path, *flags]


def over_stdio(base, *flags):
  program, *arguments = command(base, *flags)
  return mcp.StdioServerParameters(command=program, args=arguments, env=ENVIRONMENT)


def use(server, steps, **settings):
  """Runs `await steps(call)` with a client, where `call` returns what a tool does."""

  async def run():
    async with mcp.Client(server, **settings) as client:

      async def call(tool, **arguments):
        result = await client.call_tool(tool, arguments)
        (content,) = result.content
        if result.is_error:
          assert "\n" not in content.text
          return content.text
        assert json.loads(content.text) == result.structured_content
        return result.structured_content

      return await steps(client, call)

  return asyncio.run(asyncio.wait_for(run(), 120))


def ids(found):
  return [passage["id"] for passage in found["passages"]]


def test_an_assistant_searches_and_reads_what_another_process_writes(base):
  async def steps(client, call):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["search", "read"]
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert "Search before" in client.instructions and "feedback" not in client.instructions
    found = await call("search", question="where does moss grow", k=1)
    (hit,) = base.search("where does moss grow", k=1)
    assert found["passages"] == [
      {"score": pytest.approx(hit.score), "id": hit.id, "title": "Moss", "text": hit.text}
      | {"passage": 0, "start": 0, "end": len(hit.text), "fields": {"year": 1958}}
    ]
    assert ids(await call("search", question="shade", where={"year": {"gt": 1959}})) == ["fern"]
    assert ids(await call("search", question="elm")) == []
    base.add([{"id": "elm", "text": "An elm gives shade."}])
    assert ids(await call("search", question="elm")) == ["elm"]
    assert (await call("read", id="a/moss.txt")) == NOTES[0]
    base.delete("elm")
    assert "no document 'elm'" in await call("read", id="elm")
    part, parts = await call("read", id="long"), []
    while "next_start" in part:
      parts.append(part["text"])
      part = await call("read", id="long", start=part["next_start"])
    assert "".join([*parts, part["text"]]) == base.document("long").text and len(parts) == 1

  for mode in ("auto", "legacy"):
    use(over_stdio(base), steps, mode=mode)


def test_an_assistant_that_may_write_remembers_and_deletes(base):
  async def steps(client, call):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"add", "delete"} < tools.keys() and tools["delete"].annotations.destructive_hint
    added = await call("add", text="The gate code is 4711.", fields={"kind": "note", "id": "x"})
    assert added["added"] == 1 and KnowledgeBase(base.path).document(added["id"]).fields == {
      "kind": "note"
    }
    assert ids(await call("search", question="gate code", where={"kind": "note"})) == [added["id"]]
    same = await call("add", text="The gate code is 4711.", fields={"kind": "note"})
    assert same == {"id": added["id"], "unchanged": 1}
    assert "another content" in await call("add", id=added["id"], text="Another.")
    changed = await call("add", id=added["id"], text="The gate code is 4712.", replace=True)
    assert changed == {"id": added["id"], "updated": 1}
    assert "4712" in (await call("read", id=added["id"]))["text"]
    assert await call("delete", ids=[added["id"], "fern"]) == {"deleted": 2}
    assert "no document 'fern'" in await call("delete", ids=["fern"])
    with hold(base.path, kind=KIND):
      assert "already working" in await call("add", text="Locked.")
    assert len(base) == 2

  use(over_stdio(base, "--write"), steps)


def test_an_assistant_learns_what_was_useful_and_forgets_it(base):
  async def steps(client, call):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert not tools["feedback"].annotations.destructive_hint
    assert "give feedback" in client.instructions
    asked = {"question": "what grows in the shade", "k": 2}
    first, second = ids(await call("search", **asked))
    said = await call("feedback", question=asked["question"], useful=[second], not_useful=[first])
    assert said["question"] == asked["question"]
    found = await call("search", **asked)
    assert ids(found) == [second, first]
    assert found["passages"][0]["useful_for"] == asked["question"]
    assert await call("forget", question=asked["question"]) == {"forgotten": 1}
    assert ids(await call("search", **asked)) == [first, second]
    assert "is remembered; none was" in await call("forget", question=asked["question"])
    await call("feedback", question=asked["question"], answer="Ferns")
    assert ids(await call("search", **asked)) == ["fern", "a/moss.txt"]

  use(over_stdio(base, "--write"), steps)


@pytest.mark.parametrize(
  ("tool", "arguments", "reason"),
  [
    ("search", {}, "question: Field required"),
    ("search", {"question": "moss", "k": 0}, "k=0; give at least 1"),
    ("search", {"question": "moss", "k": "x", "where": 3}, "k: .*; where: "),
    ("search", {"question": "moss", "filter": {}}, "search has no argument 'filter'; .*where"),
    ("search", {"question": "moss", "where": {"yaer": 1}}, "no document has a field 'yaer'"),
    ("search", {"question": "\ud800"}, "half of a surrogate pair"),
    ("search", {"question": "x'" * 2000}, "question .*the most are 2,000"),
    ("search", {"question": "moss", "where": {"year": [*range(9999)]}}, "the most are 10,000"),
    ("search", {"question": "moss", "where": {f"f{n}": None for n in range(9999)}}, "the most"),
    ("search", {"question": "moss", "k": 10**9}, "k=1000000000; the most are 100"),
    ("read", {"id": "fern", "start": -1}, "start: "),
    ("search", {"question": "moss", "min_answerable": 0.5}, "nothing has learned"),
    ("search", {"question": "moss", "min_answerable": 2}, "give at least 0 and at most 1"),
    ("read", {"id": "x\ny"}, "there is no document"),
    ("add", {"text": " "}, "needs a text or a title"),
    ("add", {"text": "a", "fields": {"x": "\ud800"}}, "surrogate"),
    ("delete", {"ids": "fern"}, "ids: "),
    ("feedback", {"question": "moss"}, "says nothing"),
    ("feedback", {"question": "moss", "useful": ["elm"]}, "no document 'elm'"),
    ("sing", {}, "Unknown tool: sing"),
  ],
)
def test_a_mistake_is_one_clear_line(base, tool, arguments, reason):
  async def steps(client, call):
    del client
    told = await call(tool, **arguments)
    assert isinstance(told, str) and re.search(reason, told), told

  use(mcp_server.make_server(base, write=True), steps)
  assert len(base) == len(NOTES)


def test_a_text_that_is_json_is_a_text(base):
  async def steps(client, call):
    assert len(ids(await call("search", question="shade", after=None, newer=None))) == 2
    for after in ('["trees"]', '{"moss": 1}'):
      found = await call("search", question="shade", after=after)
      assert found["asked"] == base.search("shade", after=after).asked != "shade"
    assert "FIELD:HALF_LIFE" in await call("search", question="shade", newer='["year:5"]')

  use(mcp_server.make_server(base), steps)


def test_what_an_assistant_reads_is_bounded(tmp_path):
  fields = {"html": "x" * 300_000, "list": [*range(100_000)], "year": 1958}
  many = {f"f{n}": n for n in range(5000)}
  documents = [
    {"id": "large", "title": "Moss " * 9000, "text": "moss " + "y" * 300_000, **fields},
    {"id": "many", "text": "Fern.", **many},
  ]
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en")

  async def steps(client, call):
    del client
    found = await call("search", question="moss")
    assert {*ids(found)} == {"large"} and len(json.dumps(found)) < 50_000
    fields = found["passages"][0]["fields"]
    assert fields["year"] == 1958 and "of 300,000 characters" in fields["html"]
    read = await call("read", id="many")
    assert read["f1"] == 1 and read["..."] == "4,950 more fields"
    assert len(json.dumps(await call("read", id="large"))) < 40_000

  use(mcp_server.make_server(base), steps)


def test_answers_name_the_documents_that_they_cite(base, tmp_path):
  async def generated(client, call):
    del client
    found = await call("answer", question="moss in the shade")
    assert (found["answer"], found["cited"]) == ("It does [1][7].", ["a/moss.txt"])
    assert "[7]" in found["doubt"] and ids(found)[0] == "a/moss.txt"
    nothing = await call("answer", question="xylophone")
    assert nothing["answer"] is None and nothing["cited"] == []

  server = mcp_server.make_server(base, generate=lambda *_: "It does [1][7].")
  use(server, generated)
  base.add_reader(tiny_models.write(tmp_path / "reader", reads=True))

  async def read(client, call):
    del client
    found, expected = await call("answer", question="shade"), base.answer("shade")
    assert found["answer"] == expected.text and found["doubt"] is None
    assert found["cited"] == [expected.hits[expected.place].id]
    assert found["probability"] == pytest.approx(expected.probability)

  use(mcp_server.make_server(base), read)


def test_slow_answers_do_not_stop_searches_and_too_many_are_refused_in_a_line(base):
  going = threading.Event()

  def generate(question, hits):
    del question, hits
    going.wait(60)
    return "In the shade [1]."

  async def steps(client, call):
    del client
    answers = [asyncio.ensure_future(call("answer", question="moss")) for _ in range(20)]
    await asyncio.sleep(0.5)
    assert ids(await call("search", question="moss")) == ["a/moss.txt"]
    going.set()
    return await asyncio.gather(*answers)

  found = use(mcp_server.make_server(base, generate=generate), steps)
  refused = [one for one in found if isinstance(one, str)]
  assert len(refused) == 4 and {*refused} == {"16 requests are being answered; try again"}
  assert all(one["answer"] == "In the shade [1]." for one in found if one not in refused)


@contextlib.contextmanager
def over_http(base, *flags, **environment):
  """Yields the address that a server prints."""
  served = subprocess.Popen(
    command(base, "--port=0", *flags),
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, **environment},
  )
  try:
    assert served.stdout
    yield served.stdout.readline().strip()
  finally:
    served.terminate()
    assert served.wait(20) == 0


def test_programs_of_this_machine_are_served_over_http(base):
  async def steps(client, call):
    assert len((await client.list_tools()).tools) == 2
    assert ids(await call("search", question="moss")) == ["a/moss.txt"]

  with over_http(base) as address:
    assert address.startswith("http://127.0.0.1:") and address.endswith("/mcp")
    use(address, steps)
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    for names in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
      refused = httpx.post(address, json=called, headers={**accept, **names})
      assert refused.status_code in (403, 421), refused.text
    too_large = httpx.post(address, content=b" " * 10_000_000, headers=accept)
    assert too_large.status_code == 413
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}}
    opening = {**called, "method": "initialize", "params": opening}
    opening["params"]["clientInfo"] = {"name": "a", "version": "1"}
    with contextlib.ExitStack() as stack:
      port = int(address.split(":")[2].partition("/")[0])
      for _ in range(50):  # clients that never send what they announced
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        slow.sendall(f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n".encode())
        slow.sendall(b"content-length: 9999\r\n\r\n{")
      codes = [httpx.post(address, json=opening, headers=accept).status_code for _ in range(101)]
    assert {*codes[:90]} == {200} and codes[-1] == 503, "sessions are bounded"


def test_a_client_that_listens_does_not_keep_the_server_from_stopping(base):
  opening = {"protocolVersion": "2025-06-18", "capabilities": {}}
  opening["clientInfo"] = {"name": "a", "version": "1"}
  opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
  headers = {"accept": "application/json, text/event-stream"}
  # Leaving `over_http` first waits until the server has stopped.
  with contextlib.ExitStack() as after, over_http(base) as address:
    opened = httpx.post(address, json=opening, headers=headers)
    headers["mcp-session-id"] = opened.headers["mcp-session-id"]
    client = after.enter_context(httpx.Client())
    listens = after.enter_context(client.stream("GET", address, headers=headers))
    assert listens.status_code == 200


@pytest.mark.parametrize("flags", [[], ["--port=0"]])
def test_what_searches_need_is_loaded_before_anybody_is_served(base, monkeypatch, flags):
  done = []
  monkeypatch.setattr(KnowledgeBase, "warm", lambda self: done.append("warm"))
  for kind, name in ((listening.Listener, "serve"), (mcp_server.MCPServer, "run")):
    monkeypatch.setattr(kind, name, lambda self, *_, **settings: done.append("served"))
  assert main.main(["kb", "mcp", base.path, *flags]) == 0
  assert done == ["warm", "served"]


def test_writing_over_http_needs_the_token(base, capsys, monkeypatch):
  monkeypatch.delenv("REALM_EDIT_TOKEN", raising=False)
  assert main.main(["kb", "mcp", base.path, "--write", "--port=0"]) == 1
  assert "REALM_EDIT_TOKEN" in capsys.readouterr().err

  async def steps(client, call):
    del client
    assert (await call("add", text="Elms give shade."))["added"] == 1

  with over_http(base, "--write", REALM_EDIT_TOKEN=TOKEN) as address:
    for headers in ({}, {"authorization": "Bearer another"}):
      assert httpx.post(address, json={}, headers=headers).status_code == 401
      large = httpx.post(address, content=bytes(10_000_000), headers=headers)
      assert large.status_code == 401, "a client that is still sending hears why"
    known = httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"})
    use(streamable_http_client(address, http_client=known), steps)
  assert len(base) == len(NOTES) + 1


def test_an_improbable_answer_is_not_given(trained):  # noqa: F811
  base, _ = trained

  async def steps(client, call):
    del client
    for question, known in ((KNOWN, True), (UNKNOWN, False)):
      for tool in ("search", "answer"):
        found = await call(tool, question=question, min_answerable=0.5)
        assert bool(ids(found)) == known
        assert found["answerable"] == base.search(question).answerable
        assert tool == "search" or bool(found["answer"]) == known
      assert ids(await call("search", question=question))

  generate = lambda question, hits: f"{hits[0].id} [1]"  # noqa: E731
  use(mcp_server.make_server(base, generate=generate), steps)


def test_half_a_surrogate_pair_is_answered(base):
  """As JavaScript sends a text that was cut in the middle of an emoji."""
  process = subprocess.Popen(
    command(base), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )
  assert process.stdin and process.stdout
  try:
    client = {"name": "cut", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    asked = {"name": "search", "arguments": {"question": "moss \ud83d \\\\ud83d"}}
    for message in (
      {"id": 1, "method": "initialize", "params": begin},
      {"method": "notifications/initialized"},
      {"id": 2, "method": "tools/call", "params": asked},
      {"id": 3, "method": "tools/list", "params": {}},
    ):
      print(json.dumps({"jsonrpc": "2.0", **message}), file=process.stdin, flush=True)
    answers = {
      found["id"]: found for found in (json.loads(process.stdout.readline()) for _ in "123")
    }
    assert not answers[2]["result"].get("isError") and "a/moss.txt" in json.dumps(answers[2])
    process.stdin.close()
    assert process.wait(30) == 0
  finally:
    process.kill()
