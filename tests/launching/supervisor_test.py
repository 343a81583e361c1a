import dataclasses
import signal
import subprocess
import sys
import time

import pytest

from realm_jax.launching.stop_signal import STOPPED
from realm_jax.launching.supervisor import Process, supervise


def python(name, program, **settings):
  return Process(name=name, command=[sys.executable, "-c", program], **settings)


def killed_times(path, times):
  """A program that kills itself so many times, and counts its starts in a file."""
  return f"""
import os, signal
with open({str(path)!r}, "a") as file: file.write("x")
print("started", flush=True)
if os.path.getsize({str(path)!r}) <= {times}: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_is_started_again_and_its_log_goes_on(tmp_path):
  starts = tmp_path / "starts"
  other = python("builder", f"open({str(tmp_path / 'done')!r}, 'w')")
  supervise([python("trainer", killed_times(starts, 2)), other], logs=str(tmp_path / "logs"))
  assert starts.read_text() == "xxx"
  assert (tmp_path / "logs" / "trainer.log").read_text() == "started\n" * 3
  assert (tmp_path / "done").exists()


@pytest.mark.parametrize("code", [0, STOPPED])
def test_a_process_that_was_told_to_stop_is_started_again(tmp_path, capfd, code):
  starts = tmp_path / "starts"
  count = f"file = open({str(starts)!r}, 'a'); file.write('x')"
  stops = python("trainer", f"{count}; raise SystemExit({code} if file.tell() < 3 else 0)")
  finished = lambda: starts.read_text() == "xxx"  # noqa: E731
  supervise([dataclasses.replace(stops, finished=finished)], logs=str(tmp_path / "logs"))
  assert starts.read_text() == "xxx"
  assert "trainer was ended by a request to stop; restart 2 of 3" in capfd.readouterr().err
  never = dataclasses.replace(stops, finished=lambda: False)
  with pytest.raises(ChildProcessError, match="trainer ended with a request to stop after 1 rest"):
    supervise([never], logs=str(tmp_path / "logs"), max_restarts=1)


def test_an_exit_code_ends_all_and_shows_the_log(tmp_path):
  refuses = python("trainer", "import sys; sys.exit('no such corpus')")
  waits = python("builder", "import time; time.sleep(60)")
  started = time.monotonic()
  with pytest.raises(
    ChildProcessError, match=r"trainer ended with exit code 1; .*: no such corpus"
  ):
    supervise([refuses, waits], logs=str(tmp_path / "logs"))
  assert time.monotonic() - started < 30


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
  ready = tmp_path / "ready"
  deaf = python(
    "builder",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    f"open({str(ready)!r}, 'w'); time.sleep(60)",
  )
  refuses = python(
    "trainer",
    "import os, sys, time\n"
    f"while not os.path.exists({str(ready)!r}): time.sleep(0.05)\n"
    "sys.exit(3)",
  )
  started = time.monotonic()
  with pytest.raises(ChildProcessError, match="exit code 3"):
    supervise([deaf, refuses], logs=str(tmp_path / "logs"), grace_seconds=0.5)
  assert time.monotonic() - started < 30


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_an_interrupt_lets_the_processes_save(tmp_path, sent):
  saves = f"""
import signal, sys, time
def save(*_):
  open({str(tmp_path / "saved")!r}, "w").close()
  sys.exit(0)
signal.signal(signal.SIGTERM, save)
open({str(tmp_path / "ready")!r}, "w").close()
time.sleep(60)
"""
  parent = f"""
import signal, sys
# A shell starts what runs in the background with SIGINT ignored, and nohup with SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from realm_jax.launching.supervisor import Process, supervise
supervise([Process(name="trainer", command=[sys.executable, "-c", {saves!r}])],
          logs={str(tmp_path / "logs")!r})
"""
  process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
  while not (tmp_path / "ready").exists():
    assert process.poll() is None
    time.sleep(0.05)
  process.send_signal(sent)
  _, errors = process.communicate(timeout=30)
  assert b"KeyboardInterrupt" in errors
  assert (tmp_path / "saved").exists()
