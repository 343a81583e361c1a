"""An object store on loopback that can fail: gcp-storage-emulator with 503s, delays and a watcher.

Its bucket lives in memory. Processes that have `environment` find it under `gs://bucket`.

  with EmulatedGcs() as store:
    subprocess.run(command, env={**os.environ, **store.environment})
"""

import functools
import http.server
import logging
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable

from gcp_storage_emulator import server
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.storage import Storage

BUCKET = "bucket"
ROOT = f"gs://{BUCKET}"


class EmulatedGcs:
  """A bucket behind an HTTP port of this machine; use as a context manager.

  Attributes:
    root: of the paths in it.
    delay: seconds that every request takes longer.
    requests: answered so far, by method.
    refused: requests answered with 503 so far.
    watch: called with the names of all objects after each request.
  """

  def __init__(self):
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    self.root = ROOT
    self.delay = 0.0
    self.requests: Counter[str] = Counter()
    self.refused = 0
    self.watch: Callable[[list[str]], None] = lambda names: None
    self._refuse: Callable[[str, str], bool] = lambda method, path: False
    self._storage = Storage(use_memory_fs=True)
    self._lock = threading.Lock()
    buckets.create_bucket(BUCKET, self._storage)
    handler = functools.partial(_Handler, self._storage, self)
    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    self._server.daemon_threads = True
    self._server.handle_error = lambda *_: None  # clients that are killed, or stop reading early
    address = f"127.0.0.1:{self._server.server_address[1]}"
    self.environment = {
      "STORAGE_EMULATOR_HOST": f"http://{address}",  # gcsfs, and Google's client that Orbax asks
      "TENSORSTORE_GCS_HTTP_URL": f"http://{address}",
      "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",  # TensorStore would look for credentials
      "NO_GCE_CHECK": "true",  # and so would gcsfs, on a server of metadata
      "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks an API that the emulator has not
    }

  def __enter__(self) -> "EmulatedGcs":
    threading.Thread(target=self._server.serve_forever, daemon=True).start()
    return self

  def __exit__(self, *_):
    self._server.shutdown()
    self._server.server_close()

  def names(self) -> list[str]:
    """Returns the names of all objects."""
    # A copy, because others write meanwhile.
    return sorted(self._storage.objects.get(BUCKET, {}).copy())

  def read(self, name: str) -> bytes:
    """Returns the content of an object."""
    return self._storage.get_file(BUCKET, name)

  def write(self, name: str, content: bytes) -> None:
    """Replaces the content of an object behind everyone's back."""
    record = self._storage.get_file_obj(BUCKET, name)
    changed = {"size": str(len(content)), "generation": str(time.time_ns())}
    self._storage.create_file(BUCKET, name, content, {**record, **changed})

  def refuse(self, wanted: Callable[[str, str], bool]) -> None:
    """Answers 503 to the requests whose method and path are wanted."""
    self._refuse = wanted

  def answer(self, handler: "_Handler", method: str) -> None:
    """Handles one request."""
    time.sleep(self.delay)
    with self._lock:
      self.requests[method] += 1
      wrong = 503 if self._refuse(method, handler.path) else self._failed_condition(handler)
      if wrong is not None:
        self.refused += wrong == 503
        handler.send_response(wrong)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
      server.Router(handler).handle(method)
      self.watch(self.names())

  def generation(self, path: str) -> str:
    """Returns the generation of the object that a request is about, "0" if there is none."""
    address = urllib.parse.urlsplit(path)
    query = urllib.parse.parse_qs(address.query)
    named = re.search(r"/o/([^/]+)$", address.path)
    name = urllib.parse.unquote(named[1]) if named else query.get("name", [""])[0]
    return self._storage.objects.get(BUCKET, {}).get(name, {}).get("generation", "0")

  def _failed_condition(self, handler: "_Handler") -> int | None:
    """Compares generations as the real store does and the emulator does not; TensorStore asks."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query)
    here = self.generation(handler.path)
    if query.get("ifGenerationMatch", [here]) != [here]:
      return 412
    return 304 if query.get("ifGenerationNotMatch") == [here] else None


class _Handler(server.RequestHandler):
  def __init__(self, storage: Storage, store: EmulatedGcs, *args):
    self._store = store
    super().__init__(storage, *args)

  def send_response(self, code, message=None):
    super().send_response(code, message)
    self.send_header("x-goog-generation", self._store.generation(self.path))

  def do_GET(self):
    self._store.answer(self, "GET")

  def do_POST(self):
    self._store.answer(self, "POST")

  def do_PUT(self):
    self._store.answer(self, "PUT")

  def do_DELETE(self):
    self._store.answer(self, "DELETE")

  def do_PATCH(self):
    self._store.answer(self, "PATCH")

  def log_message(self, *_):
    """Requests are counted, not logged."""
