import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from realm_jax import main
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", [{"id": "moss", "text": "Moss grows."}])


def request(address, body=None, token=""):
  headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
  data = body and json.dumps(body).encode()
  with urllib.request.urlopen(urllib.request.Request(address, data, headers)) as response:
    return json.load(response)


def test_a_knowledge_base_is_served_until_a_signal(base):
  token = "a token that nobody guesses"
  command = [sys.executable, "-m", "realm_jax.main", "kb", "serve", base.path, "--port=0"]
  environment = {**os.environ, "REALM_EDIT_TOKEN": token}
  with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as server:
    try:
      assert server.stdout is not None
      address = server.stdout.readline().strip()
      assert address.startswith("http://127.0.0.1:")
      assert request(f"{address}/api/search?q=moss")["hits"][0]["id"] == "moss"
      elm = {"documents": [{"id": "elm", "text": "Elms die."}]}
      assert request(f"{address}/api/documents", elm, token)["added"] == 1
    finally:
      server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=60) == 0
  assert "elm" in base


@pytest.mark.parametrize(
  ("words", "code", "named"),
  [
    (["absent"], 1, "absent"),
    (["{}", "--port=65536"], 2, "65536"),
    (["{}", "--port=0", "--edit_token=short"], 1, "short"),
  ],
)
def test_a_mistake_ends_in_one_line(words, code, named, base, capsys):
  assert main.main(["kb", "serve", *(word.replace("{}", base.path) for word in words)]) == code
  said = capsys.readouterr().err
  assert named.replace("short", "5 characters") in said and said.count("\n") == 1
