"""Fuses what a dual encoder and BM25 think of the same passages, without training.

  fused(x, z) = w standardized dense(x, z) + (1 - w) standardized BM25(x, z)

A score is standardized per query: minus the mean over all passages, divided by their deviation.
That makes both scales comparable, and unlike ranks it keeps how far the best ones stand out.
"""

from typing import NamedTuple

import numpy as np

DENSE_WEIGHT = 0.6
_RESOLUTION = 1e-12  # of a variance, relative to the mean of squares


class Spread(NamedTuple):
  """Number, sum and sum of squares of the scores of each query, which add up over passages."""

  count: int
  total: np.ndarray
  squares: np.ndarray

  @classmethod
  def of(cls, scores: np.ndarray) -> "Spread":
    """Returns the spread of scores `[..., N]`."""
    scores = np.asarray(scores, np.float64)
    return cls(scores.shape[-1], scores.sum(-1), np.einsum("...N,...N->...", scores, scores))

  def plus(self, other: "Spread") -> "Spread":
    """Returns the spread of both."""
    return Spread(self.count + other.count, self.total + other.total, self.squares + other.squares)

  def standardize(self, scores: np.ndarray) -> np.ndarray:
    """Returns scores `[..., N]` minus the mean, divided by the deviation, in float64."""
    count = max(1, self.count)
    mean, squares = np.asarray(self.total / count), np.asarray(self.squares / count)
    variance = squares - mean**2
    # Without a deviation nothing tells passages apart.
    deviation = np.sqrt(np.where(variance > _RESOLUTION * squares, variance, 1))
    return (scores - mean[..., None]) / deviation[..., None]


def fuse(
  dense: np.ndarray,
  sparse: np.ndarray,
  *,
  spreads: tuple[Spread, Spread],
  weight: float = DENSE_WEIGHT,
) -> np.ndarray:
  """Returns the fused scores of some passages, `[..., C]`.

  Args:
    spreads: Of the scores of each, over all passages.
    weight: Weight of the dual encoder, between 0 and 1; BM25 has the rest.
  """
  return weight * spreads[0].standardize(dense) + (1 - weight) * spreads[1].standardize(sparse)


def fuse_scores(
  dense: np.ndarray, sparse: np.ndarray, *, weight: float = DENSE_WEIGHT
) -> np.ndarray:
  """Returns the fused scores of all passages or documents, `[..., N]`."""
  return fuse(dense, sparse, spreads=(Spread.of(dense), Spread.of(sparse)), weight=weight)
