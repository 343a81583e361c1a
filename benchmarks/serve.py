"""Load on `realm serve`: clients that ask without a pause, and now and then edit, over loopback.

Beside them one that sends what must be refused: malformed JSON, 10 MB bodies, unknown routes.

python benchmarks/serve.py --run=runs/demo --output=serve.json
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

from realm_jax.data.questions import read_questions

EDIT_EVERY = 20
JSON = "application/json"
HOSTILE = (  # method, path, body, content type, status
  ("POST", "/api/fill_mask", b"{", JSON, 422),
  ("POST", "/api/fill_mask", b"[" * 60_000, JSON, 400),
  ("POST", "/api/fill_mask", b'{"texts": ["\\ud800 [MASK]"]}', JSON, 422),
  ("POST", "/api/fill_mask", b'{"texts": ["no mask"]}', JSON, 422),
  ("POST", "/api/fill_mask", b" " * 10_000_000, JSON, 413),
  ("POST", "/api/fill_mask", b"\x00", "application/octet-stream", 415),
  ("PUT", "/api/passages/99999999", b'{"text": "<script>"}', JSON, 404),
  ("GET", "/<script>", b"", JSON, 404),
  ("PATCH", "/", b"{}", JSON, 405),
)


class Client(threading.Thread):
  """Asks until told to stop; notes the seconds and the status of every request."""

  def __init__(self, port: int, texts: list[str], *, seed: int, until: float):
    super().__init__()
    self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    self._texts = texts
    self._random = random.Random(seed)
    self._until = until
    self._cookie = ""
    self.seconds: list[float] = []
    self.statuses: dict[str, int] = {}

  def run(self):
    while time.perf_counter() < self._until:
      if len(self.seconds) % EDIT_EVERY == EDIT_EVERY - 1:
        path, body = "/api/passages", {"title": "<b>", "text": "The euro is used by <script>."}
      else:
        path, body = "/api/fill_mask", {"texts": [self._random.choice(self._texts)]}
      started = time.perf_counter()
      try:
        status = str(self._post(path, body))
      except (OSError, http.client.HTTPException) as error:
        status = type(error).__name__
        self._connection.close()
      self.seconds.append(time.perf_counter() - started)
      self.statuses[status] = self.statuses.get(status, 0) + 1

  def _post(self, path: str, body: dict) -> int:
    headers = {"content-type": "application/json", "cookie": self._cookie}
    self._connection.request("POST", path, json.dumps(body), headers)
    response = self._connection.getresponse()
    response.read()
    self._cookie = (response.getheader("set-cookie") or self._cookie).partition(";")[0]
    return response.status


class Nuisance(threading.Thread):
  """Sends what must be refused; notes every answer that is not the one expected."""

  def __init__(self, port: int, *, until: float):
    super().__init__()
    self._port = port
    self._until = until
    self.requests = 0
    self.unexpected: list[str] = []

  def run(self):
    while time.perf_counter() < self._until:
      method, path, body, kind, expected = HOSTILE[self.requests % len(HOSTILE)]
      connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
      try:
        connection.request(method, path, body, {"content-type": kind})
        status = connection.getresponse().status
      except (OSError, http.client.HTTPException) as error:
        status = type(error).__name__
      connection.close()
      if status != expected:
        self.unexpected.append(f"{method} {path[:30]}: {status}, not {expected}")
      self.requests += 1
      time.sleep(0.1)


def start_server(run: str) -> tuple[subprocess.Popen, int]:
  """Starts the server, waits until it is ready, and returns it with its port."""
  command = [
    sys.executable,
    "-m",
    "realm_jax.main",
    "serve",
    f"--checkpoints={os.path.join(run, 'pretrain', 'checkpoints')}",
    f"--passages={os.path.join(run, 'passages')}",
    f"--index={os.path.join(run, 'index')}",
    "--port=0",
    "--requests_per_minute=1000000",
    "--burst=100000",
  ]
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


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--run", default="runs/demo", help="directory of a finished `make demo`")
  parser.add_argument("--clients", type=int, default=8)
  parser.add_argument("--seconds", type=float, default=60)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  questions = read_questions(os.path.join(args.run, "almanac", "heldout.jsonl"))
  texts = [question.masked_text for question in questions]
  started = time.perf_counter()
  server, port = start_server(args.run)
  ready = time.perf_counter() - started
  try:
    until = time.perf_counter() + args.seconds
    clients = [Client(port, texts, seed=i, until=until) for i in range(args.clients)]
    nuisance = Nuisance(port, until=until)
    for thread in (*clients, nuisance):
      thread.start()
    for thread in (*clients, nuisance):
      thread.join()
  finally:
    server.send_signal(signal.SIGTERM)
    stopped = time.perf_counter()
    exit_code = server.wait(timeout=30)
  seconds = sorted(second for client in clients for second in client.seconds)
  statuses: dict[str, int] = {}
  for client in clients:
    for status, count in client.statuses.items():
      statuses[status] = statuses.get(status, 0) + count
  result = {
    "cores": len(os.sched_getaffinity(0)),
    "clients": args.clients,
    "seconds": args.seconds,
    "seconds_until_ready": round(ready, 1),
    "requests": len(seconds),
    "requests_per_second": round(len(seconds) / args.seconds, 1),
    "statuses": statuses,
    "errors": sum(count for status, count in statuses.items() if status not in ("200", "201")),
    "hostile_requests": nuisance.requests,
    "hostile_answers_unexpected": nuisance.unexpected,
    "median_ms": round(1000 * statistics.median(seconds), 1),
    "p95_ms": round(1000 * seconds[int(0.95 * len(seconds))], 1),
    "p99_ms": round(1000 * seconds[int(0.99 * len(seconds))], 1),
    "exit_code_after_sigterm": exit_code,
    "seconds_to_stop": round(time.perf_counter() - stopped, 2),
  }
  print(json.dumps(result, indent=2))
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()
