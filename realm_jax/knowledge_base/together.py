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
    self._embedding = threading.Lock()
    self._waiting: collections.deque[_Question] = collections.deque()

  def __call__(self, text: str) -> np.ndarray:
    """Returns the embedding `[E]` of a question."""
    question = _Question(text)
    self._waiting.append(question)
    with self._embedding:
      while not question.is_done:  # also if others did not wait for it
        self._embed_waiting()
    if question.error is not None:
      raise question.error
    assert question.embedding_E is not None
    return question.embedding_E

  def _embed_waiting(self) -> None:
    number = min(self._most, len(self._waiting))
    batch = [self._waiting.popleft() for _ in range(number)]
    try:
      embeddings = self._embed([question.text for question in batch])
      for question, embedding_E in zip(batch, embeddings, strict=True):
        question.embedding_E = embedding_E
    except Exception as error:
      if number == 1:
        batch[0].error = error
      for question in batch if number > 1 else ():  # so that one cannot fail the others
        try:
          (question.embedding_E,) = self._embed([question.text])
        except Exception as own:
          question.error = own
    finally:
      for question in batch:
        question.is_done = True


class _Question:
  def __init__(self, text: str):
    self.text, self.is_done = text, False
    self.embedding_E: np.ndarray | None = None
    self.error: Exception | None = None
