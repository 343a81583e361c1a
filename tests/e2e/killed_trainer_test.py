"""A real trainer process, killed or told to stop in mid-run and started again."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from realm_jax import main
from realm_jax.runs.supervisor import STOPPED
from realm_jax.training import checkpoints
from realm_jax.training.metric_writers import METRICS_FILE

pytestmark = pytest.mark.timeout(600)

# Data and model split: four parts of a batch, each on two devices.
KEYWORDS = {
  "num_steps": 24,
  "checkpoint_every": 4,
  "keep_checkpoints": 2,
  "model_parallel": 2,
  "layout": "fully_sharded",
}
GRACE_SECONDS = 30  # the shortest that clouds give a machine that they take back


def interrupt(command, metrics, *, number, after):
  """Starts a trainer, sends it a signal once a step is written.

  Returns:
    Exit code, stderr, and seconds from the signal to the end.
  """
  process = subprocess.Popen(
    [sys.executable, "-m", "realm_jax.main", *command], stderr=subprocess.PIPE, text=True
  )
  with process:
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
      # A step is written when there are as many line ends.
      if metrics.exists() and metrics.read_bytes().count(b"\n") >= after:
        break
      time.sleep(0.002)
    ports = listening(process.pid)
    process.send_signal(number)
    sent = time.monotonic()
    _, complaints = process.communicate()
  assert ports == []
  return process.returncode, complaints, time.monotonic() - sent


def listening(pid):
  """Returns the addresses that a process waits for connections at."""
  connections = psutil.Process(pid).net_connections(kind="inet")
  return [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]


def test_an_open_port_is_seen():
  with socket.create_server(("127.0.0.1", 0)) as server:
    assert server.getsockname() in listening(os.getpid())


def test_a_trainer_killed_then_told_to_stop_ends_as_if_nothing_had_happened(
  world, arguments, losses
):
  keywords = {**KEYWORDS, "corpus": world / "training"}
  assert main.main(arguments("undisturbed", **keywords)) == 0
  undisturbed = losses("undisturbed")
  assert list(undisturbed) == list(range(1, 25))

  command = arguments("disturbed", **keywords)
  metrics = world / "disturbed" / METRICS_FILE
  saved = world / "disturbed" / "checkpoints"
  code, _, _ = interrupt(command, metrics, number=signal.SIGKILL, after=10)
  assert code == -signal.SIGKILL
  assert 4 <= checkpoints.steps(saved)[-1] < 17

  code, complaints, seconds = interrupt(command, metrics, number=signal.SIGTERM, after=17)
  assert code == STOPPED
  assert seconds < GRACE_SECONDS
  assert "SIGTERM received: saving and stopping" in complaints
  assert "Traceback" not in complaints
  reached = checkpoints.steps(saved)[-1]
  assert 17 <= reached < 24
  assert losses("disturbed") == dict(itertools.islice(undisturbed.items(), reached))

  assert main.main(command) == 0
  assert losses("disturbed") == undisturbed
