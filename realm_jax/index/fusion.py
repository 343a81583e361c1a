"""Fuses what a dual encoder and BM25 think of the same passages, without training.

  fused(x, z) = w standardized dense(x, z) + (1 - w) standardized BM25(x, z)

A score is standardized per query: minus the mean over all passages, divided by their deviation.
That makes both scales comparable, and unlike ranks it keeps how far the best ones stand out.
"""

import numpy as np

DENSE_WEIGHT = 0.6


def fuse_scores(
  dense: np.ndarray,
  sparse: np.ndarray,
  *,
  weight: float = DENSE_WEIGHT,
  sample: np.ndarray | slice = slice(None),
) -> np.ndarray:
  """Returns the fused scores of the same passages or documents, `[..., N]`.

  Args:
    dense: Scores of the dual encoder, `[..., N]`.
    sparse: Scores of BM25, `[..., N]`.
    weight: Weight of the dual encoder, between 0 and 1; BM25 has the rest.
    sample: Which of them give means and deviations, such as a mask `[N]` of those that are not
      deleted.
  """
  return weight * standardize(dense, dense[..., sample]) + (1 - weight) * standardize(
    sparse, sparse[..., sample]
  )


def standardize(scores: np.ndarray, sample: np.ndarray) -> np.ndarray:
  """Returns scores minus the mean of a sample of them, divided by its deviation, in float64."""
  if not sample.size:
    return np.zeros(np.shape(scores))
  deviation = sample.std(axis=-1, keepdims=True, dtype=np.float64)
  mean = sample.mean(axis=-1, keepdims=True, dtype=np.float64)
  # Without a deviation nothing tells passages apart.
  return (scores - mean) / np.where(deviation > 0, deviation, 1)
