"""Edits of a corpus that a session sees, and that end with it."""

import collections
import threading
from collections.abc import Callable

from realm_jax.corpus.edits import Edits

_MAX_EDITS = 200
_MAX_SESSIONS = 1000


class SessionEdits:
  """Edits of each session; the least recently used session is dropped first.

  Threads may use them concurrently.
  """

  def __init__(self):
    self._edits: collections.OrderedDict[str, Edits] = collections.OrderedDict()
    self._lock = threading.Lock()

  def read(self, session: str) -> Edits:
    """Returns the edits of a session."""
    with self._lock:
      if session in self._edits:
        self._edits.move_to_end(session)
      return self._edits.get(session, Edits())

  def change(self, session: str, change: Callable[[Edits], Edits]) -> Edits:
    """Replaces the edits of a session.

    Raises:
      ValueError: If there are too many, or the change raises it.
    """
    with self._lock:
      edits = _checked(change(self._edits.get(session, Edits())))
      self._edits.pop(session, None)
      if edits:
        self._edits[session] = edits
      if len(self._edits) > _MAX_SESSIONS:
        self._edits.popitem(last=False)
      return edits


def _checked(edits: Edits) -> Edits:
  if len(edits) > _MAX_EDITS:
    raise ValueError(f"more than {_MAX_EDITS} edits; undo some, or prepare a new corpus")
  return edits
