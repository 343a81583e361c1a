"""What a run asks of an evaluation between its steps."""

import abc
from typing import Literal


class StoppedError(Exception):
  """An evaluation was left because the run was told to stop."""


class Validation(abc.ABC):
  """An evaluation between steps, which chooses the best parameters.

  Attributes:
    every: Steps between evaluations; the last step has one as well.
    metric: The metric that chooses.
    better: Whether a "higher" or a "lower" one is better.
    digest: Digest of what is evaluated.
    at_start: Whether the parameters of step 0 may be the best.
  """

  every: int
  metric: str
  better: Literal["higher", "lower"] = "higher"
  digest: str
  at_start: bool = False

  @abc.abstractmethod
  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics; raises StoppedError once the run is to stop."""

  @abc.abstractmethod
  def samples(self) -> str:
    """Returns examples of the last evaluation as Markdown."""
