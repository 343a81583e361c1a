"""How well probabilities tell what happens: whether they rank it, and whether they are right."""

from collections.abc import Callable, Mapping

import numpy as np
import scipy.stats

_BINS = 10
_RESAMPLES = 1_000


def auroc(probabilities: np.ndarray, happened: np.ndarray) -> float:
  """Returns how often what happened is more probable than what did not; NaN if all is one."""
  number = int(happened.sum())
  pairs = number * (len(happened) - number)
  if not pairs:
    return float("nan")
  ranks = scipy.stats.rankdata(probabilities)[happened].sum()
  return float((ranks - number * (number + 1) / 2) / pairs)


def calibration_error(probabilities: np.ndarray, happened: np.ndarray) -> float:
  """Returns the mean distance from probability to frequency in ten bins of equal width (ECE)."""
  bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
  sums = np.bincount(bins, probabilities - happened, _BINS)
  return float(np.abs(sums).sum() / len(bins))


FIGURES: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
  "AUROC": auroc,
  "calibration error": calibration_error,
}


def measure(
  probabilities: np.ndarray, happened: np.ndarray
) -> dict[str, tuple[float, tuple[float, float]]]:
  """Returns each figure with its 95 % bootstrap interval."""
  draw = np.random.default_rng(0)
  samples = draw.integers(len(happened), size=(_RESAMPLES, len(happened)))
  measured = {}
  for name, figure in FIGURES.items():
    values = [figure(probabilities[sample], happened[sample]) for sample in samples]
    low, high = np.nanpercentile(values, [2.5, 97.5]).tolist()
    measured[name] = figure(probabilities, happened), (low, high)
  return measured
