"""docs/agents.md: every command and program does what it says."""

import json
import pathlib
import re
import shlex
import sys

import pytest

mcp = pytest.importorskip("mcp")

from realm_jax import main  # noqa: E402
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase  # noqa: E402
from tests.web.mcp_server_test import ENVIRONMENT, ids, use  # noqa: E402

pytestmark = pytest.mark.interop
GUIDE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text("utf-8")
TOOLS = re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE)


def blocks(language):
  found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
  return [block for of, block in found if of == language]


@pytest.fixture
def memory(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "notes").mkdir()
  (tmp_path / "notes" / "gate.txt").write_text("Gate\n\nThe gate opens at seven.\n")
  (create,) = re.findall(r"^realm (kb create .*)", GUIDE, re.MULTILINE)
  assert main.main(shlex.split(create)) == 0
  return KnowledgeBase("memory")


def test_an_assistant_starts_the_tools_that_the_guide_lists(memory, tmp_path):
  entry = json.loads(blocks("json")[0])["mcpServers"]["memory"]
  (command,) = re.findall(r"^realm (kb mcp .*)", blocks("")[0], re.MULTILINE)
  assert entry["command"] == "realm" and shlex.split(command) == entry["args"]
  started = mcp.StdioServerParameters(
    command=sys.executable,
    args=["-m", "realm_jax.main", *entry["args"]],
    env=ENVIRONMENT,
    cwd=tmp_path,
  )

  async def steps(client, call):
    tools = [tool.name for tool in (await client.list_tools()).tools]
    assert tools == [name for name in TOOLS if name != "answer"], "which needs what answers"
    assert ids(await call("search", question="when does the gate open")) == ["gate.txt"]
    # What another process writes meanwhile.
    (following,) = re.findall(r"`realm (kb sync [^`]*) --watch`", GUIDE)
    (tmp_path / "notes" / "key.txt").write_text("Key\n\nThe key is under the mat.\n")
    assert main.main(shlex.split(following)) == 0
    assert ids(await call("search", question="key")) == ["key.txt"]

  use(started, steps)


def test_the_program_prints_what_the_guide_says(memory, capsys):
  capsys.readouterr()
  (program,) = blocks("python")
  exec(program, {})
  assert capsys.readouterr().out == blocks("")[1]
  assert [document.id for document in memory.documents()] == ["gate.txt"]
  assert memory.past_questions() == []
