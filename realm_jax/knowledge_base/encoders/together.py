"""Questions of several threads, embedded together: a batch costs much less than its questions."""

import collections
import threading
from collections.abc import Callable, Sequence

import numpy as np


class Together:
  """Embeds questions, of as many threads as ask at the same time in one call.

  Nothing is waited for: while one call runs, the questions that come are kept for the next.

  Args:
    embed: Returns the embeddings of some questions, in the same order.
    most: How many questions it takes at once.
  """

  def __init__(self, embed: Callable[[Sequence[str]], np.ndarray], *, most: int):
    self._embed, self._most = embed, most
    self._changing = threading.Lock()  # what follows
    self._waiting: collections.deque[_Question] = collections.deque()
    self._is_led = False  # whether a thread embeds, or is about to

  def __call__(self, text: str) -> np.ndarray:
    """Returns the embedding `[E]` of a question."""
    question = _Question(text)
    with self._changing:
      self._waiting.append(question)
      leads, self._is_led = not self._is_led, True
    if not leads:
      question.turn.wait()
    if not question.is_done:
      self._lead()
    if question.error is not None:
      raise question.error
    assert question.embedding_E is not None
    return question.embedding_E

  def _lead(self) -> None:
    """Embeds the first of what waits, with the question of this thread; the next then leads."""
    with self._changing:
      batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
    try:
      self._embed_all(batch)
    finally:
      with self._changing:
        self._is_led = bool(self._waiting)
        if self._waiting:
          self._waiting[0].turn.set()
      for question in batch:
        question.is_done = True
        question.turn.set()

  def _embed_all(self, batch: Sequence["_Question"]) -> None:
    try:
      embeddings = self._embed([question.text for question in batch])
      for question, embedding_E in zip(batch, embeddings, strict=True):
        question.embedding_E, question.error = embedding_E, None
    except Exception as error:
      if len(batch) == 1:
        batch[0].error = error
      else:  # so that one cannot fail the others
        for question in batch:
          self._embed_all([question])


class _Question:
  def __init__(self, text: str):
    self.text, self.is_done, self.turn = text, False, threading.Event()
    self.embedding_E: np.ndarray | None = None
    self.error: Exception | None = RuntimeError("the call that embeds was interrupted")
