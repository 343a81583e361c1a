"""Metrics of an index generation, and of its difference from the previous one."""

import numpy as np
import scipy.special
import scipy.stats


def hubness(ids_BxK: np.ndarray, *, num_passages: int) -> dict[str, float]:
  """Measures how unevenly passages are retrieved.

  Returns:
    `hub_share`, the share of queries that get the most frequent passage, and `hub_skewness`, the
    skewness of the number of times each of the N passages is retrieved (Radovanović et al. 2010); 0
    if all are retrieved equally often.
  """
  counts_N = np.bincount(ids_BxK[ids_BxK >= 0], minlength=num_passages).astype(np.float64)
  skewness = float(scipy.stats.skew(counts_N)) if np.ptp(counts_N) else 0.0
  return {"hub_share": float(counts_N.max() / len(ids_BxK)), "hub_skewness": skewness}


def drift(before_NxE: np.ndarray, after_NxE: np.ndarray) -> float:
  """Returns one minus the mean cosine similarity of each passage's old and new embeddings."""
  before, after = before_NxE.astype(np.float32), after_NxE.astype(np.float32)
  norms_N = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
  cosines_N = np.einsum("NE,NE->N", before, after) / np.maximum(norms_N, 1e-12)
  return float(1 - cosines_N.mean())


def prior_figures(scores_BxK: np.ndarray) -> dict[str, float]:
  """Returns the means of `null_mass`, p(null|x), and `entropy` of p(z|x) in nats.

  Args:
    scores_BxK: Scores of the null passage (column 0) and the best passages; -inf marks none.
  """
  prior_BxK = scipy.special.softmax(scores_BxK, axis=1)
  entropy_B = scipy.special.entr(prior_BxK).sum(axis=1)
  return {"null_mass": float(prior_BxK[:, 0].mean()), "entropy": float(entropy_B.mean())}


def kept_share(before_BxK: np.ndarray, after_BxK: np.ndarray) -> float:
  """Returns the share of the previously retrieved passages that are retrieved again."""
  again_BxK = (before_BxK[:, :, None] == after_BxK[:, None, :]).any(axis=-1) & (before_BxK >= 0)
  return float(again_BxK.sum() / max((before_BxK >= 0).sum(), 1))
