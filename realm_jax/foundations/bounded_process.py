"""A process that reads what others have made, so that nothing of it can harm this one."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

try:
  import resource
except ImportError:  # on Windows, where only the time is bounded
  resource = None

_WAIT = 10  # times the seconds that it may compute


class BoundedProcess:
  """Calls a function of bytes in a process of its own, one call at a time.

  The process is started at the first call, and anew after one that has ended it.

  Args:
    module: Name of the module that calls `answer_requests`.
    seconds: What a call may compute.
  """

  def __init__(self, module: str, *, seconds: int):
    self._module, self._seconds = module, seconds
    self._lock = threading.Lock()
    self._process: subprocess.Popen | None = None
    self._owner = 0

  def __call__(self, request: bytes) -> bytes:
    """Returns the answer.

    Raises:
      ChildProcessError: If the call has ended the process; TimeoutError if its time did.
    """
    with self._lock:
      process = self._running()
      timer = threading.Timer(_WAIT * self._seconds, process.kill)
      timer.start()
      try:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
          _send(process.stdin, request)
        answer = _receive(process.stdout)
      except BaseException:
        self._end()  # whose answer nobody waits for
        raise
      finally:
        timer.cancel()
      if answer is None:
        raise self._end()
      return answer

  def _running(self) -> subprocess.Popen:
    if self._process is None or self._owner != os.getpid():
      self._owner = os.getpid()
      self._process = subprocess.Popen(
        [sys.executable, "-m", self._module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # it ends with its input, and Ctrl-C is for this process
      )
    return self._process

  def _end(self) -> OSError:
    """Ends the process; returns why it had ended."""
    process, self._process = self._process, None
    assert process is not None
    process.kill()
    code = process.wait()
    with contextlib.suppress(OSError):  # of what it has not read
      process.communicate()
    if code in (-signal.SIGKILL, -getattr(signal, "SIGXCPU", 0)):
      return TimeoutError(f"it takes more than {self._seconds} seconds to read")
    name = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return ChildProcessError(f"it ends what reads it ({name})")


def answer_requests(answer: Callable[[bytes], bytes], *, memory: int, seconds: int) -> None:
  """Answers the requests of the process that started this one, until that one ends.

  Args:
    memory: Bytes of address space; no file is written.
    seconds: What a call may compute.
  """
  requests, answers = sys.stdin.buffer, sys.stdout.buffer
  if resource:
    _bound(resource.RLIMIT_AS, memory)
    _bound(resource.RLIMIT_FSIZE, 0)
    _bound(resource.RLIMIT_CORE, 0)
  while (request := _receive(requests)) is not None:
    if resource:
      used = resource.getrusage(resource.RUSAGE_SELF)
      _bound(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds, lasts=False)
    _send(answers, answer(request))


def _bound(kind: int, most: int, *, lasts: bool = True) -> None:
  assert resource
  _, hard = resource.getrlimit(kind)
  most = most if hard == resource.RLIM_INFINITY else min(most, hard)
  with contextlib.suppress(ValueError, OSError):  # where the system has no such bound
    resource.setrlimit(kind, (most, most if lasts else hard))


def _send(pipe: IO[bytes], content: bytes) -> None:
  pipe.write(len(content).to_bytes(8))
  pipe.write(content)
  pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
  """Returns what was sent; None if the other process has ended."""
  size = pipe.read(8)
  if len(size) < 8:
    return None
  content = pipe.read(int.from_bytes(size))
  return content if len(content) == int.from_bytes(size) else None
