"""Questions of several threads, embedded together: a batch costs much less than its questions."""

import collections
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

_Question = tuple[str, Future[np.ndarray]]


class Together:
  """Embeds questions, of as many threads as ask at the same time in one call.

  Nothing is waited for: while one call runs, the questions that come are kept for the next.

  Args:
    embed: Returns the embeddings of some questions, in the same order.
    most: How many questions it takes at once.
  """

  def __init__(self, embed: Callable[[Sequence[str]], np.ndarray], *, most: int):
    self._embed, self._most = embed, most
    self._waiting: collections.deque[_Question] = collections.deque()
    self._embedding = threading.Lock()

  def __call__(self, text: str) -> np.ndarray:
    """Returns the embedding `[E]` of a question."""
    found: Future[np.ndarray] = Future()
    self._waiting.append((text, found))
    while not found.done():
      with self._embedding:
        if not found.done():  # by the thread that was here before
          self._embed_next()
    return found.result()

  def _embed_next(self) -> None:
    batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
    try:
      self._embed_all(batch)
    finally:
      for _, found in batch:
        if not found.done():
          found.set_exception(RuntimeError("the call that embeds was interrupted"))

  def _embed_all(self, batch: Sequence[_Question]) -> None:
    try:
      pairs = [*zip(batch, self._embed([text for text, _ in batch]), strict=True)]
    except Exception as error:
      if len(batch) == 1:
        batch[0][1].set_exception(error)
      else:  # so that one cannot fail the others
        for question in batch:
          self._embed_all([question])
    else:
      for (_, found), embedding_E in pairs:
        found.set_result(embedding_E)
