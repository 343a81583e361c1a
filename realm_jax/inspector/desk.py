"""Where questions are taken: the models, the edits, and how many may ask at once."""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

from realm_jax.corpus.edits import Edits
from realm_jax.datatypes import MASK
from realm_jax.inference.editable_corpus import EditableCorpus
from realm_jax.inference.explanation import Explanation
from realm_jax.inference.mask_filler import MaskFiller
from realm_jax.inference.question_answerer import QuestionAnswerer
from realm_jax.inspector.edit_books import EditBook
from realm_jax.inspector.page import EditView

Model = MaskFiller | QuestionAnswerer
Kind = Literal["mask", "question"]


def kind_of(model: Model) -> Kind:
  """Returns what a model is asked: a sentence with a `[MASK]`, or a question."""
  return "mask" if isinstance(model, MaskFiller) else "question"


class Missing(LookupError):
  """There is nothing of this name."""


class Busy(Exception):
  """As many questions are waiting as may wait."""


@dataclasses.dataclass(frozen=True)
class Desk:
  """Models by the names they are shown with, all over one corpus, and the edits of it.

  Attributes:
    models: the first one is the one that is edited and asked by default.
    book: keeps the edits.
    max_waiting: questions that may wait while one is being answered.
  """

  models: dict[str, Model]
  book: EditBook
  max_waiting: int = 32
  _turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)
  _places: threading.BoundedSemaphore = dataclasses.field(init=False)

  def __post_init__(self):
    object.__setattr__(self, "_places", threading.BoundedSemaphore(self.max_waiting + 1))

  @property
  def corpus(self) -> EditableCorpus:
    return next(iter(self.models.values())).corpus

  def names_for(self, text: str) -> list[str]:
    """Returns the models that a text is for; all of them, to say why not, if it is for none."""
    kind = "mask" if MASK in text else "question"
    return [name for name, model in self.models.items() if kind_of(model) == kind] or [*self.models]

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
    """Asks a model, over the corpus as the session edited it.

    Raises:
      Busy: if too many questions are waiting.
      ValueError: if a text or the target does not fit.
    """
    model = self.models[name]
    explain = model.fill_mask if isinstance(model, MaskFiller) else model.answer
    with self._my_turn():
      return explain(
        texts,
        answers=answers,
        target=target or None,
        edits=self.book.read(session),
        with_rankings=with_rankings,
      )

  def change(self, passage_id: int, title: str, text: str, *, session: str) -> None:
    """Writes other words into a passage.

    Raises:
      Missing: if there is no such passage.
      ValueError: if it is empty or too long.
    """
    written = self.corpus.write(title, text)
    self.book.change(
      session, lambda edits: self._existing(edits, passage_id).with_passage(passage_id, written)
    )

  def add(self, title: str, text: str, *, session: str) -> int:
    """Adds a passage and returns its id.

    Raises:
      ValueError: if it is empty or too long.
    """
    written = self.corpus.write(title, text)
    added = []

    def change(edits: Edits) -> Edits:
      added[:] = [edits.next_id(len(self.corpus.store))]
      return edits.with_passage(added[0], written)

    self.book.change(session, change)
    return added[0]

  def remove(self, passage_id: int, *, session: str) -> None:
    """Takes a passage away.

    Raises:
      Missing: if there is no such passage.
    """
    self.book.change(
      session, lambda edits: self._existing(edits, passage_id).with_passage(passage_id, None)
    )

  def undo(self, passage_id: int, *, session: str) -> None:
    """Puts a passage back as the corpus has it."""
    self.book.change(session, lambda edits: edits.without(passage_id))

  def undo_all(self, *, session: str) -> None:
    """Puts all passages back."""
    self.book.change(session, lambda _: Edits())

  def passage(self, passage_id: int, *, session: str) -> dict:
    """Returns id, title, text, and whether it is edited.

    Raises:
      Missing: if there is no such passage.
    """
    edits = self.book.read(session)
    self._existing(edits, passage_id)
    view = self.corpus.view(edits)
    return {
      "passage_id": passage_id,
      "title": view.title(passage_id),
      "text": view.text(passage_id),
      "edited": view.edited(passage_id),
    }

  def edits(self, *, session: str) -> list[EditView]:
    """Returns what was edited, by id."""
    store = self.corpus.store
    views = []
    for passage_id, passage in sorted(self.book.read(session).passages.items()):
      new = passage_id >= len(store)
      if passage is None and new:
        continue
      title = store.title(passage_id) if passage is None else passage.title
      text = store.text(passage_id) if passage is None else passage.text
      kind = "removed" if passage is None else "added" if new else "changed"
      views.append(EditView(passage_id=passage_id, kind=kind, title=title, text=text))
    return views

  def _existing(self, edits: Edits, passage_id: int) -> Edits:
    if not self.corpus.view(edits).holds(passage_id):
      raise Missing(f"there is no passage {passage_id}")
    return edits

  @contextlib.contextmanager
  def _my_turn(self) -> Iterator[None]:
    if not self._places.acquire(blocking=False):
      raise Busy(f"{self.max_waiting} questions are waiting already; ask again in a moment")
    try:
      with self._turn:
        yield
    finally:
      self._places.release()
