"""A searcher in a process of its own, so that loading and freeing it never blocks this one.

ScaNN holds the interpreter lock while it loads: for a second per million passages of 128 float32.
"""

import contextlib
import multiprocessing
import multiprocessing.util
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

import numpy as np

from realm_jax.devices import datatypes
from realm_jax.foundations import child_processes
from realm_jax.index.vectors import searcher


class SearchProcess:
  """Loads a searcher in another process and searches there; that process ends with this object.

  Args:
    load: Makes the searcher; sent to the process.
    preload: A module to import once for all such processes.

  Raises:
    ChildProcessError: If the process dies. Any other error is that of `load`, or a RuntimeError
      with its type and message if it cannot be sent between processes.
  """

  def __init__(self, load: Callable[[], searcher.Searcher], *, preload: str):
    # Forking this process would copy the threads of JAX in an unknown state.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    self._connection, theirs = context.Pipe()
    self._process = context.Process(target=_serve, args=(theirs, load), daemon=True, name="search")
    self._process.start()
    theirs.close()
    self._lock = threading.Lock()
    # The process ignores signals and ends when the connection is closed, also if this one dies.
    multiprocessing.util.Finalize(self, self._connection.close, exitpriority=0)
    self._receive()

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns what the searcher finds."""
    with self._lock:
      with contextlib.suppress(ConnectionError):  # receiving tells why
        self._connection.send((queries_BxE, k))
      return datatypes.SearchResults(*self._receive())

  def _receive(self):
    try:
      answer = self._connection.recv()
    except (EOFError, ConnectionError) as error:
      self._process.join(timeout=5)
      code, remedy = self._process.exitcode, ""
      if code == -signal.SIGKILL:
        remedy = (
          ", most likely because memory ran out; spread the index over more hosts, or build it with"
          " --dtype=bfloat16"
        )
      raise ChildProcessError(
        f"the process that searches the index died with exit code {code}{remedy}"
      ) from error
    if isinstance(answer, Exception):
      raise answer
    return answer


def _serve(connection: Connection, load: Callable[[], searcher.Searcher]) -> None:
  """Answers queries until the connection is closed."""
  # Those who stop a run may signal all of its processes; the run still searches for its last step.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  child_processes.end_with_parent()  # which may be gone before the searcher is loaded
  try:
    loaded, answer = load(), None
  except Exception as error:
    connection.send(_sendable(error))
    return
  try:
    while True:
      connection.send(answer)
      queries_BxE, k = connection.recv()
      try:
        answer = tuple(loaded.search(queries_BxE, k))
      except Exception as error:
        answer = _sendable(error)
  except (EOFError, ConnectionError):
    return


def _sendable(error: Exception) -> Exception:
  """Returns the error, or its type and message if it does not survive pickling."""
  try:
    # Type stubs have it as a method.
    return ForkingPickler.loads(ForkingPickler.dumps(error))  # pyright: ignore
  except Exception:
    return RuntimeError(f"{type(error).__name__}: {error}")
