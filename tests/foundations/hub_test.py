"""Models of the hub, from a server on this machine."""

import http.server
import json
import threading

import pytest

from realm_jax.foundations import hub

constants = pytest.importorskip("huggingface_hub.constants")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "pytorch_model.bin": b"pickle"}


class Hub(http.server.BaseHTTPRequestHandler):
  asked = []

  def do_GET(self):
    Hub.asked.append(self.path)
    name = self.path.rsplit("/", 1)[-1]
    if self.path.startswith("/api/models/moss/oak/tree/"):
      content = json.dumps(
        [
          {"type": "file", "path": name, "size": len(body), "oid": "0"}
          for name, body in FILES.items()
        ]
      ).encode()
    elif self.path.startswith("/api/models/moss/oak"):
      siblings = [{"rfilename": name} for name in FILES]
      content = json.dumps({"id": "moss/oak", "sha": COMMIT, "siblings": siblings}).encode()
    elif self.path.startswith(f"/moss/oak/resolve/{COMMIT}/") and name in FILES:
      content = FILES[name]
    else:
      self.send_response(404)
      self.send_header("X-Error-Code", "RepoNotFound")
      self.send_header("Content-Length", "0")
      self.end_headers()
      return
    self.send_response(200)
    self.send_header("Content-Length", str(len(content)))
    self.send_header("ETag", f'"{name}"')
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
