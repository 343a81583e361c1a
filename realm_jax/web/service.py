"""Answers queries and edits the corpus for many clients at once."""

import dataclasses
from collections.abc import Sequence

from realm_jax.answering.answerer import Answerer, Kind
from realm_jax.answering.editable_corpus import EditableCorpus
from realm_jax.answering.explanation import Explanation
from realm_jax.corpus.edits import Edits
from realm_jax.text.wordpieces import MASK
from realm_jax.web.page import EditView
from realm_jax.web.refusals import NotFoundError
from realm_jax.web.session_edits import SessionEdits
from realm_jax.web.turns import Turns


@dataclasses.dataclass(frozen=True)
class AnsweringService:
  """Named models over one corpus, and its edits by sessions; answers one request at a time.

  Attributes:
    models: Models by displayed name; edits apply to the first, which also answers by default.
    turns: Lets requests wait while one is answered.
  """

  models: dict[str, Answerer]
  turns: Turns = dataclasses.field(default_factory=Turns)
  _edits: SessionEdits = dataclasses.field(default_factory=SessionEdits)

  @property
  def corpus(self) -> EditableCorpus:
    return next(iter(self.models.values())).corpus

  def names_of_kind(self, kind: Kind) -> list[str]:
    """Returns the names of the models of a kind."""
    return [name for name, model in self.models.items() if model.kind == kind]

  def names_for(self, text: str) -> list[str]:
    """Returns the models that take a text; if none does, all of them, to explain why not."""
    return self.names_of_kind("mask" if MASK in text else "question") or list(self.models)

  def ask(
    self,
    name: str,
    texts: Sequence[str],
    *,
    session: str,
    answers: int = 5,
    target: str | None = None,
    with_rankings: bool = False,
  ) -> list[Explanation]:
    """Queries a model over the corpus with the session's edits.

    Raises:
      OverloadedError: If too many requests are waiting.
      ValueError: If the model cannot take a text or the target.
    """
    model = self.models[name]
    with self.turns.exclusive():
      return model.explain(
        texts,
        answers=answers,
        target=target or None,
        edits=self._edits.read(session),
        with_rankings=with_rankings,
      )

  def change(self, passage_id: int, title: str, text: str, *, session: str) -> None:
    """Replaces a passage.

    Raises:
      NotFoundError: If there is no such passage.
      ValueError: If the text is empty or too long.
    """
    written = self.corpus.write(title, text)
    self._edits.change(
      session, lambda edits: self._holding(edits, passage_id).with_passage(passage_id, written)
    )

  def add(self, title: str, text: str, *, session: str) -> int:
    """Adds a passage and returns its id.

    Raises:
      ValueError: If the text is empty or too long.
    """
    written = self.corpus.write(title, text)
    added = []

    def change(edits: Edits) -> Edits:
      added[:] = [edits.next_id(len(self.corpus.store))]
      return edits.with_passage(added[0], written)

    self._edits.change(session, change)
    return added[0]

  def remove(self, passage_id: int, *, session: str) -> None:
    """Removes a passage.

    Raises:
      NotFoundError: If there is no such passage.
    """
    self._edits.change(
      session, lambda edits: self._holding(edits, passage_id).with_passage(passage_id, None)
    )

  def undo(self, passage_id: int, *, session: str) -> None:
    """Restores a passage of the corpus, or drops an added one."""
    self._edits.change(session, lambda edits: edits.without(passage_id))

  def undo_all(self, *, session: str) -> None:
    """Drops all edits."""
    self._edits.change(session, lambda _: Edits())

  def passage(self, passage_id: int, *, session: str) -> dict:
    """Returns id, title and text of a passage, and whether it is edited.

    Raises:
      NotFoundError: If there is no such passage.
    """
    edits = self._edits.read(session)
    self._holding(edits, passage_id)
    view = self.corpus.view(edits)
    return {
      "passage_id": passage_id,
      "title": view.title(passage_id),
      "text": view.text(passage_id),
      "edited": view.edited(passage_id),
    }

  def edits(self, *, session: str) -> list[EditView]:
    """Returns the edits of a session, ordered by passage id."""
    store = self.corpus.store
    views = []
    for passage_id, passage in sorted(self._edits.read(session).passages.items()):
      new = passage_id >= len(store)
      if passage is None and new:
        continue
      title = store.title(passage_id) if passage is None else passage.title
      text = store.text(passage_id) if passage is None else passage.text
      kind = "removed" if passage is None else "added" if new else "changed"
      views.append(EditView(passage_id=passage_id, kind=kind, title=title, text=text))
    return views

  def _holding(self, edits: Edits, passage_id: int) -> Edits:
    if not self.corpus.view(edits).holds(passage_id):
      raise NotFoundError(f"there is no passage {passage_id}")
    return edits
