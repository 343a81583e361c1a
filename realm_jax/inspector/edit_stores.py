"""Stores of edits: in memory per session, or in a file for everyone.

Both are safe to use from several threads; `persistent` tells them apart.
"""

import collections
import json
import threading
from collections.abc import Callable

from realm_jax.corpus.edits import Edits, WrittenPassage
from realm_jax.foundations import atomic_files, object_store

Change = Callable[[Edits], Edits]
_MAX_EDITS = 200
_MAX_SESSIONS = 1000


class SessionEdits:
  """Edits of each session in memory; the least recently used session is dropped first."""

  persistent = False

  def __init__(self):
    self._edits: collections.OrderedDict[str, Edits] = collections.OrderedDict()
    self._lock = threading.Lock()

  def read(self, session: str) -> Edits:
    """Returns the edits of a session."""
    with self._lock:
      if session in self._edits:
        self._edits.move_to_end(session)
      return self._edits.get(session, Edits())

  def change(self, session: str, change: Change) -> Edits:
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


class SharedEdits:
  """One set of edits for everyone, written to a file at each change.

  Raises:
    ValueError: If the file has edits of another corpus.
  """

  persistent = True

  def __init__(self, path: str, *, corpus: str, write: Callable[[str, str], WrittenPassage]):
    self._path = path
    self._corpus = corpus
    self._lock = threading.Lock()
    self._edits = Edits()
    file = object_store.absolute(path)
    if file.exists():
      content = json.loads(file.read_bytes())
      if content["corpus"] != corpus:
        raise ValueError(
          f"{path} holds edits of corpus {content['corpus']}, this one is {corpus}; move it away"
        )
      self._edits = Edits(
        {
          int(passage_id): passage and write(passage["title"], passage["text"])
          for passage_id, passage in content["passages"].items()
        }
      )

  def read(self, session: str) -> Edits:
    """Returns the edits."""
    del session
    return self._edits

  def change(self, session: str, change: Change) -> Edits:
    """Replaces the edits and saves them.

    Raises:
      ValueError: If there are too many, or the change raises it.
    """
    del session
    with self._lock:
      edits = _checked(change(self._edits))
      passages = {
        passage_id: passage and {"title": passage.title, "text": passage.text}
        for passage_id, passage in sorted(edits.passages.items())
      }
      content = {"corpus": self._corpus, "passages": passages}
      atomic_files.write_text(self._path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
      self._edits = edits
      return edits


EditStore = SessionEdits | SharedEdits


def _checked(edits: Edits) -> Edits:
  if len(edits) > _MAX_EDITS:
    raise ValueError(f"more than {_MAX_EDITS} edits; undo some, or prepare a new corpus")
  return edits
