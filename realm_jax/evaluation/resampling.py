"""Uncertainty of metrics: bootstrap intervals, paired tests of two systems, calibration."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

_RESAMPLES = 2_000
_PERMUTATIONS = 10_000
_VALUES_AT_ONCE = 4_000_000
_BINS = 10
_CALIBRATION_RESAMPLES = 1_000


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A metric of two systems on the same questions.

  Attributes:
    first: Mean of the first system.
    second: Mean of the second system.
    difference: First minus second.
    interval: 95 % bootstrap confidence interval of the difference.
    p_value: Two-sided, from a paired permutation test.
  """

  first: float
  second: float
  difference: float
  interval: tuple[float, float]
  p_value: float


def bootstrap_intervals(scores: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
  """Returns the 95 % percentile interval of the mean of each array; all have the same length.

  Every resample draws the same questions for all arrays.
  """
  names = list(scores)
  if not names or not len(scores[names[0]]):
    return {}
  values = np.stack([scores[name] for name in names]).astype(np.float64)
  if values.shape[1] == 1:  # scipy rejects a single observation
    return {name: (value, value) for name, (value,) in zip(names, values.tolist(), strict=True)}
  interval = scipy.stats.bootstrap(
    (values,),
    np.mean,
    axis=1,
    n_resamples=_RESAMPLES,
    method="percentile",
    batch=max(1, _VALUES_AT_ONCE // values.size),
    rng=np.random.default_rng(0),
  ).confidence_interval
  bounds = zip(interval.low.tolist(), interval.high.tolist(), strict=True)
  return dict(zip(names, bounds, strict=True))


def compare(first: np.ndarray, second: np.ndarray) -> Comparison:
  """Compares the scores of two systems on the same questions.

  Under the null hypothesis, the sign of each question's difference is a coin flip. p is the share
  of sign assignments (all of them, or 10,000 samples) whose difference is at least as large.
  """
  differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
  return Comparison(
    first=float(np.mean(first)),
    second=float(np.mean(second)),
    difference=float(differences.mean()),
    interval=bootstrap_intervals({"difference": differences})["difference"],
    p_value=_sign_flip_p_value(differences[differences != 0]),
  )


def holm(p_values: Sequence[float]) -> list[float]:
  """Returns p-values corrected for multiple tests (Holm 1979).

  The k-th smallest of n is multiplied by n + 1 - k; the order of the p-values is kept.
  """
  order = np.argsort(p_values)
  raised = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
  adjusted = np.empty(len(p_values))
  adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1)
  return adjusted.tolist()


def _sign_flip_p_value(changed: np.ndarray) -> float:
  if len(changed) < 2:
    return 1.0
  test = scipy.stats.permutation_test(
    (changed,),
    np.sum,
    permutation_type="samples",
    n_resamples=_PERMUTATIONS,
    batch=max(1, _VALUES_AT_ONCE // len(changed)),
    vectorized=True,
    rng=np.random.default_rng(0),
  )
  return float(test.pvalue)


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


def calibration(
  probabilities: np.ndarray, happened: np.ndarray
) -> dict[str, tuple[float, tuple[float, float]]]:
  """Returns each figure with its 95 % bootstrap interval."""
  draw = np.random.default_rng(0)
  samples = draw.integers(len(happened), size=(_CALIBRATION_RESAMPLES, len(happened)))
  measured = {}
  for name, figure in (("AUROC", auroc), ("calibration error", calibration_error)):
    values = [figure(probabilities[sample], happened[sample]) for sample in samples]
    low, high = np.nanpercentile(values, [2.5, 97.5]).tolist()
    measured[name] = figure(probabilities, happened), (low, high)
  return measured
