"""Lets one request at a time use a model, which uses all cores for it."""

import contextlib
import threading
from collections.abc import Iterator

from realm_jax.web.refusals import OverloadedError


class Turns:
  """Threads take turns, and `max_waiting` of them may wait."""

  def __init__(self, *, max_waiting: int = 32):
    self._max_waiting = max_waiting
    self._lock = threading.Lock()
    self._slots = threading.BoundedSemaphore(max_waiting + 1)

  @contextlib.contextmanager
  def exclusive(self) -> Iterator[None]:
    """Waits until no other request is being answered.

    Raises:
      OverloadedError: If too many requests are waiting.
    """
    if not self._slots.acquire(blocking=False):
      raise OverloadedError(f"{self._max_waiting} requests are already waiting; try again shortly")
    try:
      with self._lock:
        yield
    finally:
      self._slots.release()
