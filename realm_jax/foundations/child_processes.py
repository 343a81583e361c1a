"""Processes that end with the one that started them, whichever way that one ends.

On Linux the kernel sends them SIGTERM. Elsewhere, and in workers of a pool, a thread waits for the
end of a pipe that the parent holds open.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

_PIPE = "REALM_PARENT_PIPE"  # environment variable: the descriptor of the end to wait for
_HAS_PRCTL = hasattr(ctypes.CDLL(None), "prctl")
# A program that asks for the signal, which stays asked for in the program that takes its place.
_ASK = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
  sys.exit(128 + signal.SIGTERM)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def start(
  command: Sequence[str], *, output: IO | None = None, environment: Mapping[str, str] = os.environ
) -> subprocess.Popen:
  """Starts a process in its own session, with SIGTERM when this thread or process has ended.

  Where the system has no such signal, the process must be a job or call `watch_parent`.

  Args:
    output: File for what it prints; None is the terminal.
  """
  asking, held = [], contextlib.ExitStack()
  ends: tuple[int, ...] = ()
  if _HAS_PRCTL:
    asking = [sys.executable, "-I", "-S", "-c", _ASK, str(os.getpid())]
  else:
    ends = os.pipe()
    environment = {**environment, _PIPE: str(ends[0])}
    held.callback(os.close, ends[0])
  with held:
    process = subprocess.Popen(
      [*asking, *command],
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=output,
      env=environment,
      pass_fds=ends[:1],
      start_new_session=True,  # Ctrl-C reaches only this process, which passes it on as SIGTERM
    )
  return process


def watch_parent() -> None:
  """Ends this process by SIGTERM when the process that started it has ended."""
  if end := os.environ.pop(_PIPE, ""):
    _when_ended(int(end), lambda: os.kill(os.getpid(), signal.SIGTERM))


def end_with_parent() -> None:
  """Ends this process, one of `multiprocessing`, when its parent has ended."""
  import multiprocessing

  parent = multiprocessing.parent_process()
  assert parent is not None, "this is the main process"
  _when_ended(parent.sentinel, lambda: os._exit(1))


def _when_ended(pipe: int, act: Callable[[], None]) -> None:
  from multiprocessing import connection

  def wait() -> None:
    connection.wait([pipe])
    act()

  threading.Thread(target=wait, name="parent", daemon=True).start()
