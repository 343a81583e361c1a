"""A trainer process without TensorFlow, killed, told to stop, and started again each time."""

import itertools
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from realm_jax import main
from realm_jax.checkpoints import orbax_files
from realm_jax.launching.stop_signal import STOPPED
from realm_jax.training.run.metric_writers import METRICS_FILE
from tests.e2e.conftest import WITHOUT_TENSORFLOW
from tests.experiments import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GRACE_SECONDS = 30  # the shortest that clouds give a machine that they take back


def interrupt(command, metrics, *, number, after):
  """Starts a trainer, sends it a signal once a step is written.

  Returns:
    Exit code, stderr, and seconds from the signal to the end.
  """
  child = [sys.executable, "-c", WITHOUT_TENSORFLOW, json.dumps(command)]
  with subprocess.Popen(child, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
      # A step is written when there are as many line ends.
      if metrics.exists() and metrics.read_bytes().count(b"\n") >= after:
        break
      time.sleep(0.002)
    ports = psutil.Process(process.pid).net_connections(kind="inet")
    process.send_signal(number)
    sent = time.monotonic()
    _, complaints = process.communicate()
  assert [port for port in ports if port.status == psutil.CONN_LISTEN] == []
  return process.returncode, complaints, time.monotonic() - sent


def test_a_trainer_killed_then_told_to_stop_has_the_losses_of_one_undisturbed(
  world, arguments, losses
):
  """The undisturbed one reads a task of SeqIO, the other the same examples, prepared."""
  often = {"num_steps": 20, "checkpoint_every": 4, "keep_checkpoints": 2}
  assert main.main(arguments("undisturbed", corpus=world / "training", **often)) == 0
  undisturbed = losses("undisturbed")
  assert list(undisturbed) == list(range(1, 21))

  prepare = ["prepare_examples", "--task=masked_queries", "--query_length=32", "--max_masks=3"]
  places = [f"--corpus={world / 'training'}", f"--output={world / 'prepared'}"]
  assert main.main([*prepare, *places, "--num_examples=168"]) == 0
  command = arguments("disturbed", corpus=world / "prepared", **often)
  metrics = world / "disturbed" / METRICS_FILE
  saved = world / "disturbed" / "checkpoints"
  code, complaints, _ = interrupt(command, metrics, number=signal.SIGKILL, after=10)
  assert code == -signal.SIGKILL, complaints
  assert 4 <= orbax_files.steps(saved)[-1] < 15

  code, complaints, seconds = interrupt(command, metrics, number=signal.SIGTERM, after=15)
  assert code == STOPPED
  assert seconds < GRACE_SECONDS
  assert "SIGTERM received: saving and stopping" in complaints
  assert "Traceback" not in complaints
  reached = orbax_files.steps(saved)[-1]
  assert 15 <= reached < 20
  assert losses("disturbed") == dict(itertools.islice(undisturbed.items(), reached))

  assert main.main(command) == 0
  assert losses("disturbed") == undisturbed
  # The newest two; the start stays as the last one that was healthy.
  assert len({*orbax_files.steps(saved)} - {0}) == 2
