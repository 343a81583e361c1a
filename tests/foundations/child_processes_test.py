"""Nothing stays behind when the process that started it is gone."""

import os
import subprocess
import sys
import time

import pytest

SLEEP = """
import os, time
from realm_jax.foundations import child_processes
child_processes.watch_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
START = """
import sys, time
from realm_jax.foundations import child_processes
child_processes._HAS_PRCTL = {has_prctl}
child_processes.start([sys.executable, "-c", {child!r}])
time.sleep(60)
"""
WORKERS = """
import os, sys, time
from realm_jax.corpus import local_pipeline
def sleep(item):
  print(os.getpid(), flush=True)
  time.sleep(0.5 if os.getpid() == here else 60)
here = os.getpid()
if __name__ == "__main__":
  list(local_pipeline.ordered_map(sleep, range(9), num_workers=3))
"""


def is_alive(pid):
  try:
    with open(f"/proc/{pid}/stat") as file:
      return file.read().rpartition(")")[2].split()[0] != "Z"
  except FileNotFoundError:
    return False


def all_end(pids):
  deadline = time.monotonic() + 20
  while time.monotonic() < deadline:
    if not any(map(is_alive, pids)):
      return True
    time.sleep(0.05)
  return False


@pytest.mark.parametrize("has_prctl", [True, False])
def test_a_child_ends_with_its_parent(has_prctl):
  program = START.format(has_prctl=has_prctl, child=SLEEP)
  with subprocess.Popen(
    [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
  ) as parent:
    child = int(parent.stdout.readline())
    assert os.getsid(child) != os.getsid(parent.pid)
    parent.kill()  # after which it does nothing more
    parent.wait()
    assert all_end([child])


def test_workers_and_their_server_end_with_their_parent(tmp_path):
  (tmp_path / "program.py").write_text(WORKERS)
  command = [sys.executable, str(tmp_path / "program.py")]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
    pids = set()
    while len(pids) < 3:
      pids.add(int(parent.stdout.readline()))
    workers = pids - {parent.pid}
    servers = {
      int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]) for pid in workers
    }
    parent.kill()
    parent.wait()
    assert all_end({*workers, *servers})
