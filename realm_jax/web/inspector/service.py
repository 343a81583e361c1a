"""What the inspector shows: a model over a corpus, with the edits of each session."""

import collections
import threading
from collections.abc import Callable, Sequence

from realm_jax.answering.answerer import Answerer, EditableCorpus
from realm_jax.answering.explanation import Explanation
from realm_jax.corpus.edits import Edits
from realm_jax.web.application import NotFoundError

_MAX_EDITS, _MAX_SESSIONS = 200, 1000


class AnsweringService:
  """A model over a corpus, and its edits by session, which end with the server."""

  def __init__(self, model: Answerer):
    self.model = model
    # The least recently used session is dropped first.
    self._edits: collections.OrderedDict[str, Edits] = collections.OrderedDict()
    self._lock = threading.Lock()  # of the edits alone: requests are answered concurrently

  @property
  def corpus(self) -> EditableCorpus:
    return self.model.corpus

  def ask(self, texts: Sequence[str], *, session: str, **asked) -> list[Explanation]:
    """Queries the model over the corpus with the session's edits; see `Answerer.explain`."""
    return self.model.explain(texts, edits=self._read(session), **asked)

  def change(self, passage_id: int, title: str, text: str, *, session: str) -> None:
    """Replaces a passage."""
    written = self.corpus.write(title, text)
    self._change(
      session, lambda edits: self._holding(edits, passage_id).with_passage(passage_id, written)
    )

  def add(self, title: str, text: str, *, session: str) -> int:
    """Adds a passage and returns its id."""
    written = self.corpus.write(title, text)
    edits = self._change(
      session,
      lambda edits: edits.with_passage(edits.next_id(len(self.corpus.store)), written),
    )
    return max(edits.passages)

  def remove(self, passage_id: int, *, session: str) -> None:
    """Removes a passage."""
    self._change(
      session, lambda edits: self._holding(edits, passage_id).with_passage(passage_id, None)
    )

  def undo(self, passage_id: int, *, session: str) -> None:
    """Restores a passage of the corpus, or drops an added one."""
    self._change(session, lambda edits: edits.without(passage_id))

  def undo_all(self, *, session: str) -> None:
    """Drops all edits."""
    self._change(session, lambda _: Edits())

  def passage(self, passage_id: int, *, session: str) -> dict:
    """Returns id, title and text of a passage, and whether it is edited."""
    view = self.corpus.view(self._holding(self._read(session), passage_id))
    return {
      "passage_id": passage_id,
      "title": view.title(passage_id),
      "text": view.text(passage_id),
      "edited": view.edited(passage_id),
    }

  def edits(self, *, session: str) -> list[dict]:
    """Returns the edits of a session, ordered by passage id."""
    store, views = self.corpus.store, []
    for passage_id, passage in sorted(self._read(session).passages.items()):
      new = passage_id >= len(store)
      if passage is None and new:
        continue
      title = store.title(passage_id) if passage is None else passage.title
      text = store.text(passage_id) if passage is None else passage.text
      kind = "removed" if passage is None else "added" if new else "changed"
      views.append({"passage_id": passage_id, "kind": kind, "title": title, "text": text})
    return views

  def _holding(self, edits: Edits, passage_id: int) -> Edits:
    if not self.corpus.view(edits).holds(passage_id):
      raise NotFoundError(f"there is no passage {passage_id}")
    return edits

  def _read(self, session: str) -> Edits:
    with self._lock:
      if session in self._edits:
        self._edits.move_to_end(session)
      return self._edits.get(session, Edits())

  def _change(self, session: str, change: Callable[[Edits], Edits]) -> Edits:
    """Replaces the edits of a session; raises ValueError if there are too many."""
    with self._lock:
      edits = change(self._edits.get(session, Edits()))
      if len(edits) > _MAX_EDITS:
        raise ValueError(f"more than {_MAX_EDITS} edits; undo some, or prepare a new corpus")
      self._edits.pop(session, None)
      if edits:
        self._edits[session] = edits
      if len(self._edits) > _MAX_SESSIONS:
        self._edits.popitem(last=False)
      return edits
