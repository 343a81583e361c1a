"""How similar a question is to past ones, which come and go one by one: by embeddings, by words."""

import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_COMPARED = 2048  # past questions, the most similar ones by the signs of embeddings
_ALL = 4 * _COMPARED  # of no more than these, all are


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


class Directions(NamedTuple):
  """Embeddings of past questions at length 1, their lengths, -1 if unknown, and signs, as bits."""

  units_NxE: np.ndarray
  lengths_N: np.ndarray
  signs_WxN: tuple[np.ndarray, ...]

  def similarity(self, question_E: np.ndarray, live_N: np.ndarray) -> np.ndarray:
    """Returns the cosine `[N]` of a question to past ones; of many, 0 to all but the nearest."""
    unit_E = question_E / (np.linalg.norm(question_E) or 1)
    if len(live_N) <= _ALL:
      return self.units_NxE @ unit_E
    differing_N = np.where(live_N, 0, len(unit_E) + 1).astype(np.uint16)
    for signs_N, signs in zip(self.signs_WxN, _signs(unit_E), strict=True):
      differing_N += np.bitwise_count(signs_N ^ signs)
    near = np.flatnonzero(differing_N <= np.partition(differing_N, _COMPARED)[_COMPARED])
    similarity_N = np.zeros(len(live_N), np.float32)
    similarity_N[near] = self.units_NxE[near] @ unit_E
    return similarity_N


class Embeddings:
  """The embeddings of past questions by one encoder."""

  def __init__(self, width: int):
    self._units = Column((width,), dtype=np.float32, fill=0)
    self._lengths = Column(dtype=np.float32, fill=-1)
    self._signs = [Column(dtype=np.uint64, fill=0) for _ in range(0, width, 64)]

  def __setitem__(self, row: int, vector_E: np.ndarray) -> None:
    length = np.linalg.norm(vector_E)
    self._units[row], self._lengths[row] = vector_E / (length or 1), length
    for column, signs in zip(self._signs, _signs(vector_E), strict=True):
      column[row] = signs

  def first(self, number: int) -> Directions:
    """Returns those of the first questions."""
    signs_WxN = tuple(column.first(number) for column in self._signs)
    return Directions(self._units.first(number), self._lengths.first(number), signs_WxN)


def _signs(vector_E: np.ndarray) -> np.ndarray:
  bits = np.packbits(vector_E > 0).tobytes()
  return np.frombuffer(bits + bytes(-len(bits) % 8), np.uint64)


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
