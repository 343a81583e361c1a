"""Metrics of rankings, by which of their places are right."""

from collections.abc import Iterable, Sequence

import numpy as np


def first_right(is_right: Iterable[bool]) -> float:
  """Returns the place of the first that is right, from 0; infinity if none is."""
  return next((place for place, right in enumerate(is_right) if right), np.inf)


def recalls(firsts_Q: Sequence[float], at: Iterable[int]) -> dict[str, np.ndarray]:
  """Returns `recall@k` by name: whether one of the first k places of each ranking is right."""
  return {f"recall@{k}": (np.asarray(firsts_Q) < k).astype(np.float64) for k in at}


def ndcg(is_right: Sequence[bool], num_right: int, *, at: int = 10) -> float:
  """Returns the nDCG of a ranking where `num_right` could be right."""
  discounts = 1 / np.log2(np.arange(2, at + 2))
  gain = discounts[: len(is_right)] @ np.asarray(is_right[:at], np.float64)
  return float(gain / discounts[:num_right].sum())
