"""How a job is asked to stop before its end, and how it says that it did."""

import contextlib
import signal
import sys
import threading

STOPPED = 128 + signal.SIGTERM  # exit code of a job that was stopped before its end
_INSISTING = (signal.SIGTERM, signal.SIGINT)  # a second one ends a run at once


class StopSignal:
  """Records that a run is to save and end; use as a context manager.

  That is SIGTERM, SIGINT, the end of the terminal (SIGHUP), and SIGUSR1, with which batch systems
  warn of the end of a job's time; the latter two unless they are ignored, as with `nohup`.
  """

  def __init__(self):
    self._received = threading.Event()
    self._previous = {}

  def __enter__(self) -> "StopSignal":
    if threading.current_thread() is threading.main_thread():
      for number in (*_INSISTING, signal.SIGHUP, signal.SIGUSR1):
        if number in _INSISTING or signal.getsignal(number) != signal.SIG_IGN:
          self._previous[number] = signal.signal(number, self._receive)
    return self

  def __exit__(self, *_):
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def __call__(self) -> bool:
    return self._received.is_set()

  def _receive(self, number, frame) -> None:
    del frame
    if self._received.is_set():
      if number in _INSISTING:
        raise KeyboardInterrupt
      return
    self._received.set()
    with contextlib.suppress(OSError):  # of a terminal that is gone
      print(f"{signal.Signals(number).name} received: saving and stopping", file=sys.stderr)
