"""How similar a question is to past ones, by their words; past questions come and go one by one."""

import array
from collections.abc import Iterable

import numpy as np


class Column:
  """An array `[N, ...]` that grows; rows that were never set have one value."""

  def __init__(self, shape: tuple[int, ...] = (), *, dtype: type, fill: float):
    self._fill, self._values = fill, np.full((16, *shape), fill, dtype)

  def __setitem__(self, row: int, value: object) -> None:
    self.first(row + 1)[row] = value

  def first(self, number: int) -> np.ndarray:
    """Returns the first rows, which are those of the column until it grows."""
    values = self._values
    if number > len(values):
      self._values = np.full((2 * number, *values.shape[1:]), self._fill, values.dtype)
      self._values[: len(values)] = values
    return self._values[:number]


class Words:
  """Compares questions by their words: the cosine of vectors of inverse frequencies.

  Attributes:
    num_added: Questions that were added.
    num_removed: Those whose words no longer count.
  """

  def __init__(self):
    self.num_added = self.num_removed = 0
    self._ids: dict[str, int] = {}
    self._questions: list[array.array] = []  # that have each word
    self._frequencies = Column(dtype=int, fill=0)
    self._words, self._starts = Column(dtype=int, fill=0), [0]  # of each question
    self._questions_of = Column(dtype=int, fill=0)  # each of these
    self._squares: tuple[tuple[int, int], np.ndarray] | None = None

  def add(self, words: Iterable[str]) -> None:
    """Adds the words of a question."""
    end = self._starts[-1]
    for word in sorted(words):  # sums do not depend on hashes
      id = self._ids.setdefault(word, len(self._ids))
      if id == len(self._questions):
        self._questions.append(array.array("q"))
      self._questions[id].append(self.num_added)
      self._frequencies.first(id + 1)[id] += 1
      self._words[end], self._questions_of[end] = id, self.num_added
      end += 1
    self._starts.append(end)
    self.num_added += 1

  def remove(self, question: int) -> None:
    """Stops counting the words of a question, given by its number."""
    start, end = self._starts[question : question + 2]
    self._frequencies.first(len(self._ids))[self._words.first(end)[start:]] -= 1
    self.num_removed += 1

  def similarity(self, words: Iterable[str]) -> np.ndarray:
    """Returns the similarity `[N]` of a question to all that were added."""
    number = self.num_added - self.num_removed
    products_N, square = np.zeros(self.num_added), 0.0
    for word in sorted(words):
      id = self._ids.get(word)
      weight = _weight(number, 0 if id is None else int(self._frequencies.first(id + 1)[id]))
      square += weight
      if id is not None:
        products_N[np.array(self._questions[id])] += weight
    return products_N / np.sqrt(np.maximum(square * self._squares_N(number), 1e-12))

  def _squares_N(self, number: int) -> np.ndarray:
    """Returns the squared length of each question's vector."""
    version = self.num_added, self.num_removed
    if self._squares is None or self._squares[0] != version:
      words, of = (column.first(self._starts[-1]) for column in (self._words, self._questions_of))
      weights = _weight(number, self._frequencies.first(len(self._ids)))[words]
      self._squares = version, np.bincount(of, weights, minlength=self.num_added)
    return self._squares[1]


def _weight(number: int, frequency):
  return np.log((number + 1) / (frequency + 0.5)) ** 2
