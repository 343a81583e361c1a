"""Models of the hub, from a server on this machine."""

import hashlib
import http.server
import json
import os
import threading

import pytest

from realm_jax.corpus.input_files import find_files
from realm_jax.data.questions import read_questions
from realm_jax.foundations import hub
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base import bert_reader_test

constants = pytest.importorskip("huggingface_hub.constants")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
  "models/moss/oak": {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"pickle",
  },
  "datasets/moss/notes": {
    "README.md": b"The card.",
    "data/a.jsonl": b'{"id": "a", "text": "Moss grows in the shade."}\n',
    "data/more/b.jsonl": b'{"id": "b", "question": "who", "answer": "Moss"}\n',
    "image.png": b"",
  },
}


class Hub(http.server.BaseHTTPRequestHandler):
  asked = []

  def do_GET(self):
    Hub.asked.append(self.path)
    content = None
    for repository, files in FILES.items():
      resolved = f"/{repository.removeprefix('models/')}/resolve/{COMMIT}/"
      if self.path.startswith(f"/api/{repository}/tree/"):
        listed = [
          {"type": "file", "path": name, "size": len(body), "oid": "0"}
          for name, body in files.items()
        ]
        content = json.dumps(listed).encode()
      elif self.path.startswith(f"/api/{repository}"):
        siblings = [{"rfilename": name} for name in files]
        found = {"id": repository.partition("/")[2], "sha": COMMIT, "siblings": siblings}
        content = json.dumps(found).encode()
      elif self.path.startswith(resolved):
        content = files.get(self.path.removeprefix(resolved))
    if content is None:
      self.send_response(404)
      self.send_header("X-Error-Code", "RepoNotFound")
      self.send_header("Content-Length", "0")
      self.end_headers()
      return
    self.send_response(200)
    self.send_header("Content-Length", str(len(content)))
    self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
    self.send_header("X-Repo-Commit", COMMIT)
    self.end_headers()
    if self.command == "GET":
      self.wfile.write(content)

  do_HEAD = do_GET

  def log_message(self, *args):
    pass


@pytest.fixture
def server(monkeypatch, tmp_path):
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    Hub.asked.clear()
    yield server
    server.shutdown()


def test_a_model_is_downloaded_once_without_pickles_and_its_commit_is_kept(server, tmp_path):
  model = hub.fetch("moss/oak")
  assert model.address == f"hf://moss/oak@{COMMIT}"
  assert {path.name for path in (tmp_path / "cache").rglob("snapshots/*/*")} == {
    "config.json",
    "model.safetensors",
  }
  Hub.asked.clear()
  assert hub.fetch(model.address) == model and not Hub.asked


def test_what_the_hub_does_not_have_is_named_in_one_line(server):
  with pytest.raises(FileNotFoundError, match="there is no directory moss/elm") as missing:
    hub.fetch("moss/elm")
  assert "\n" not in str(missing.value)


def test_a_directory_is_itself(tmp_path):
  assert hub.fetch(tmp_path).directory == str(tmp_path)


NOTES = "hf://datasets/moss/notes"


@pytest.mark.parametrize(
  "address, names",
  [
    (NOTES, ["data/a.jsonl", "data/more/b.jsonl"]),
    (f"{NOTES}@main/data", ["a.jsonl", "more/b.jsonl"]),
    (f"{NOTES}@{COMMIT}/data/a.jsonl", ["a.jsonl"]),
    (f"{NOTES}/data/*.jsonl", ["a.jsonl"]),
    (f"{NOTES}/**/*.jsonl", ["data/a.jsonl", "data/more/b.jsonl"]),
    (f"{NOTES}/README.md", ["README.md"]),
  ],
)
def test_files_of_a_dataset_are_inputs_and_stay_without_the_hub(
  server, monkeypatch, address, names
):
  (files,) = find_files([address])
  assert [file.name for file in files] == names
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  Hub.asked.clear()
  assert find_files([address]) == [files] and not Hub.asked
  with pytest.raises(FileNotFoundError, match="elm.jsonl"):
    find_files([f"{NOTES}/elm.jsonl"])


def test_a_dataset_has_documents_and_questions(server, tmp_path):
  made = KnowledgeBase.create(tmp_path / "kb", f"{NOTES}/data/a.jsonl", language="en")
  assert made.document("a").text == "Moss grows in the shade."
  (question,) = read_questions(f"{NOTES}/data/more/b.jsonl")
  assert question.text == "who"


@pytest.mark.parametrize(
  "address, error",
  [
    ("hf://datasets/moss", "moss is no dataset; give hf://datasets/OWNER/NAME"),
    (f"{NOTES}/elm.txt", "has no hf://datasets/moss/notes/elm.txt"),
    ("hf://datasets/moss/elm/a.jsonl", "no dataset .*elm/a.jsonl, and the Hugging"),
  ],
)
def test_files_that_are_not_there_are_named_in_one_line(server, address, error):
  with pytest.raises((ValueError, FileNotFoundError), match=error) as missing:
    find_files([address])
  assert "\n" not in str(missing.value)


def test_a_reader_needs_the_hub_once(server, monkeypatch, tmp_path):
  directory = tmp_path / "reader"
  directory.mkdir()
  bert_reader_test.write(directory, bert_reader_test.weights())
  files = {name: (directory / name).read_bytes() for name in os.listdir(directory)}
  monkeypatch.setitem(FILES, "models/moss/oak", files)
  documents = bert_reader_test.DOCUMENTS
  for offline in (False, True):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    base = KnowledgeBase.create(tmp_path / f"kb {offline}", documents, language="en")
    base.add_reader("moss/oak")
  assert base.answer("who is at sea").text
  with pytest.raises(FileNotFoundError, match="moss/elm.*did not give it"):
    base.add_reader("moss/elm")
