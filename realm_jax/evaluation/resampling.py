"""How sure a figure is: bootstrap intervals, and paired tests between two systems."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

_RESAMPLES = 2_000
_PERMUTATIONS = 10_000
_VALUES_AT_ONCE = 4_000_000


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One figure of two systems on the same questions.

  Attributes:
    first: mean of the first.
    second: mean of the second.
    difference: first minus second.
    interval: 95 % bootstrap interval of the difference.
    p_value: two-sided, by a paired permutation test.
  """

  first: float
  second: float
  difference: float
  interval: tuple[float, float]
  p_value: float


def bootstrap_intervals(
  scores: Mapping[str, np.ndarray], *, seed: int = 0
) -> dict[str, tuple[float, float]]:
  """Returns the 95 % percentile interval of the mean of each array; all have one length.

  Every array is resampled alike: intervals of figures of one system belong together.
  """
  names = list(scores)
  if not names or not len(scores[names[0]]):
    return {}
  values_nxF = np.stack([scores[name] for name in names], axis=1).astype(np.float64)
  size = len(values_nxF)
  random = np.random.default_rng(seed)
  means = [
    values_nxF[random.integers(size, size=(part, size))].mean(axis=1)
    for part in _parts(_RESAMPLES, values_nxF.size)
  ]
  low_F, high_F = np.percentile(np.concatenate(means), (2.5, 97.5), axis=0)
  return {
    name: (float(low), float(high)) for name, low, high in zip(names, low_F, high_F, strict=True)
  }


def compare(first: np.ndarray, second: np.ndarray, *, seed: int = 0) -> Comparison:
  """Compares the scores of two systems on the same questions.

  If both were alike, the sign of each question's difference would be a coin's: p is the share of
  10,000 drawings of signs that give a difference of means as large as the one found.
  """
  differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
  found = differences.mean()
  changed = differences[differences != 0]
  random = np.random.default_rng(seed)
  as_large = sum(
    int(
      (
        np.abs((random.integers(2, size=(part, len(changed))) * 2 - 1) @ changed)
        >= abs(changed.sum()) - 1e-9
      ).sum()
    )
    for part in _parts(_PERMUTATIONS, len(changed))
  )
  return Comparison(
    first=float(np.mean(first)),
    second=float(np.mean(second)),
    difference=float(found),
    interval=bootstrap_intervals({"difference": differences}, seed=seed)["difference"],
    p_value=(as_large + 1) / (_PERMUTATIONS + 1),  # what was found is one of the drawings
  )


def _parts(total: int, values_each: int) -> Iterator[int]:
  """Splits `total` drawings so that few enough values are in memory at once."""
  size = max(1, _VALUES_AT_ONCE // max(values_each, 1))
  for first in range(0, total, size):
    yield min(size, total - first)
