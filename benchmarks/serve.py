"""Load on `realm serve`: clients that ask without a pause, and now and then edit, over loopback.

Beside them one that sends what must be refused: malformed JSON, 10 MB bodies, unknown routes.

python benchmarks/serve.py --run=runs/demo --output=serve.json
python benchmarks/serve.py --kb=kb --clients=1,8,64 --output=serve.json
"""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import measuring

from realm_jax.data.questions import read_questions
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

JSON = "application/json"
TOKEN = "a token of this benchmark"
Request = tuple[str, str, dict | None]  # method, path, body
HOSTILE = (  # method, path, body, content type, status
  ("POST", "/api/{route}", b"{", JSON, 422),
  ("POST", "/api/{route}", b"[" * 60_000, JSON, 400),
  ("POST", "/api/{route}", b'{"texts": ["\\ud800 [MASK]"]}', JSON, 422),
  ("POST", "/api/{route}", b'{"texts": ["no mask"]}', JSON, 422),
  ("POST", "/api/{route}", b" " * 10_000_000, JSON, 413),
  ("POST", "/api/{route}", b"\x00", "application/octet-stream", 422),
  ("GET", "/<script>", b"", JSON, 404),
  ("PATCH", "/", b"{}", JSON, 405),
)


class Workload(NamedTuple):
  """What is served, and what clients ask of it.

  Attributes:
    served: Arguments of `realm`.
    route: One that takes JSON.
    ask: Makes a request of a text.
    edit: Makes one that changes something, of the number of the client.
  """

  served: Sequence[str]
  texts: Sequence[str]
  route: str
  ask: Callable[[str], Request]
  edit: Callable[[int], Request]


def of_a_model(run: str) -> Workload:
  """Masks of held-out sentences, filled by a pre-trained model; edits end with the session."""
  questions = read_questions(os.path.join(run, "almanac", "heldout.jsonl"))
  places = {"checkpoints": "pretrain/checkpoints", "passages": "passages", "index": "index"}
  added = {"title": "<b>", "text": "The euro is used by <script>."}
  return Workload(
    served=("serve", *(f"--{name}={os.path.join(run, path)}" for name, path in places.items())),
    texts=[question.masked_text for question in questions],
    route="fill_mask",
    ask=lambda text: ("POST", "/api/fill_mask", {"texts": [text]}),
    edit=lambda client: ("POST", "/api/passages", added),
  )


def of_a_knowledge_base(path: str) -> Workload:
  """Searches for beginnings of documents; each client writes a document again and again."""

  def edit(client: int) -> Request:
    document = {"id": f"benchmark-{client}", "text": f"Written at {time.time()}."}
    return "POST", "/api/documents", {"documents": [document], "replace": True}

  return Workload(
    served=("kb", "serve", path, f"--edit_token={TOKEN}"),
    texts=KnowledgeBase(path).examples(1000),
    route="documents",
    ask=lambda text: ("GET", f"/api/search?{urllib.parse.urlencode({'q': text})}", None),
    edit=edit,
  )


class Client(threading.Thread):
  """Asks until told to stop; notes the seconds and the status of every request."""

  def __init__(self, port: int, workload: Workload, *, number: int, until: float, edit_every: int):
    super().__init__()
    self._edit_every = edit_every
    self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    self._workload, self._number, self._until = workload, number, until
    self._random, self._cookie = random.Random(number), ""
    self.seconds: list[float] = []
    self.statuses: Counter[str] = Counter()

  def run(self):
    while time.perf_counter() < self._until:
      if self._edit_every and len(self.seconds) % self._edit_every == self._edit_every - 1:
        request = self._workload.edit(self._number)
      else:
        request = self._workload.ask(self._random.choice(self._workload.texts))
      seconds, status = measuring.timed(lambda request=request: self._status(*request))
      self.seconds.append(seconds)
      self.statuses[status] += 1

  def _status(self, method: str, path: str, body: dict | None) -> str:
    headers = {"content-type": JSON, "cookie": self._cookie, "authorization": f"Bearer {TOKEN}"}
    try:
      self._connection.request(method, path, body and json.dumps(body), headers)
      response = self._connection.getresponse()
      response.read()
    except (OSError, http.client.HTTPException) as error:
      self._connection.close()
      return type(error).__name__
    self._cookie = (response.getheader("set-cookie") or self._cookie).partition(";")[0]
    return str(response.status)


class Nuisance(threading.Thread):
  """Sends what must be refused; notes every answer that is not the one expected."""

  def __init__(self, port: int, route: str, *, until: float):
    super().__init__()
    self._port, self._route, self._until = port, route, until
    self.requests = 0
    self.unexpected: list[str] = []

  def run(self):
    while time.perf_counter() < self._until:
      method, path, body, kind, expected = HOSTILE[self.requests % len(HOSTILE)]
      path = path.format(route=self._route)
      headers = {"content-type": kind, "authorization": f"Bearer {TOKEN}"}
      connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
      try:
        connection.request(method, path, body, headers)
        status = connection.getresponse().status
      except (OSError, http.client.HTTPException) as error:
        status = type(error).__name__
      connection.close()
      if status != expected:
        self.unexpected.append(f"{method} {path[:30]}: {status}, not {expected}")
      self.requests += 1
      time.sleep(0.1)


def start_server(served: Sequence[str]) -> tuple[subprocess.Popen, int]:
  """Starts the server, waits until it is ready, and returns it with its port."""
  command = [sys.executable, "-m", "realm_jax.main", *served, "--port=0"]
  server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
  address = server.stdout.readline().strip()
  if not address:
    raise SystemExit(f"realm serve ended with exit code {server.wait()}")
  port = int(address.rpartition(":")[2])
  while True:
    try:
      connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
      connection.request("GET", "/ready")
      if connection.getresponse().status == 200:
        return server, port
    except OSError:
      time.sleep(0.1)


def measured(
  port: int, workload: Workload, *, clients: int, seconds: float, edit_every: int
) -> dict:
  """Returns how so many clients are served for some time."""
  until = time.perf_counter() + seconds
  asking = [
    Client(port, workload, number=i, until=until, edit_every=edit_every) for i in range(clients)
  ]
  nuisance = Nuisance(port, workload.route, until=until)
  for thread in (*asking, nuisance):
    thread.start()
  for thread in (*asking, nuisance):
    thread.join()
  took = sorted(1000 * second for client in asking for second in client.seconds)
  statuses = sum((client.statuses for client in asking), Counter())
  return {
    "clients": clients,
    "requests": len(took),
    "requests_per_second": round(len(took) / seconds, 1),
    "statuses": statuses,
    "errors": sum(count for status, count in statuses.items() if status not in ("200", "201")),
    "hostile_requests": nuisance.requests,
    "hostile_answers_unexpected": nuisance.unexpected,
    "median_ms": round(statistics.median(took), 1),
    "p95_ms": round(took[int(0.95 * len(took))], 1),
    "p99_ms": round(took[int(0.99 * len(took))], 1),
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--run", default="runs/demo", help="directory of a finished `make demo`")
  parser.add_argument("--kb", help="a knowledge base to serve instead; documents are added to it")
  parser.add_argument("--clients", default="8", help="numbers of clients, one after the other")
  parser.add_argument("--seconds", type=float, default=60, help="for each number of clients")
  parser.add_argument("--edit_every", type=int, default=20, help="requests; 0 never edits")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  workload = of_a_knowledge_base(args.kb) if args.kb else of_a_model(args.run)
  ready, (server, port) = measuring.timed(lambda: start_server(workload.served))
  try:
    loads = [
      measured(
        port,
        workload,
        clients=int(clients),
        seconds=args.seconds,
        edit_every=args.edit_every,
      )
      for clients in args.clients.split(",")
    ]
  finally:
    server.send_signal(signal.SIGTERM)
    stopping, exit_code = measuring.timed(lambda: server.wait(timeout=30))
  result = {
    "cores": len(os.sched_getaffinity(0)),
    "seconds": args.seconds,
    "seconds_until_ready": round(ready, 1),
    "loads": loads,
    "exit_code_after_sigterm": exit_code,
    "seconds_to_stop": round(stopping, 2),
  }
  print(json.dumps(result, indent=2))
  measuring.write(args.output, result)


if __name__ == "__main__":
  main()
