"""Keeps the best parameters by one metric, across restarts."""

import contextlib
import math
import os
from collections.abc import Mapping
from typing import Literal

from absl import logging

from realm_jax.checkpoints import orbax_files

BEST = "best"  # the directory within that of a run


class BestCheckpoint(contextlib.AbstractContextManager["BestCheckpoint"]):
  """Keeps one checkpoint of the parameters alone; use as a context manager.

  The best value is stored in the checkpoint, so a restarted run knows it.

  Raises:
    ValueError: If the existing checkpoint is the best by another metric.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    *,
    metric: str,
    better: Literal["higher", "lower"] = "higher",
  ):
    self._metric = metric
    self._sign = 1 if better == "higher" else -1
    self._checkpointer = orbax_files.Checkpointer(directory, keep=1)
    self.step = self._checkpointer.latest_step()
    self.value = None
    if self.step is not None:
      saved = orbax_files.read_metadata(self._checkpointer.directory / str(self.step))["best"]
      if saved["metric"] != metric:
        raise ValueError(
          f"{os.fspath(directory)} has the best checkpoint by {saved['metric']!r}; keep that "
          f"metric, or move the directory away to select by {metric!r}"
        )
      self.value = saved["value"]

  def __exit__(self, *_):
    self._checkpointer.close()

  def offer(self, step: int, params, *, metrics: Mapping[str, float], metadata: dict) -> bool:
    """Saves the parameters if they are the best so far; returns whether they are.

    A value that is not a number is worse than any that is.
    """
    if self._metric not in metrics:
      raise ValueError(f"no metric is named {self._metric!r}; choose one of {sorted(metrics)}")
    value = float(metrics[self._metric])
    if self.value is not None and self._rank(value) <= self._rank(self.value):
      return False
    if self.step is not None and step <= self.step:
      return False  # Orbax saves nothing at or before its newest step
    self._checkpointer.save(
      step,
      {"params": params},
      input={},
      metadata={
        **metadata,
        "best": {"metric": self._metric, "value": value, "figures": dict(metrics)},
      },
    )
    self._checkpointer.wait()
    self.step, self.value = step, value
    logging.info("step %d is the best so far: %s %.4f", step, self._metric, value)
    return True

  def _rank(self, value: float) -> float:
    return -math.inf if math.isnan(value) else self._sign * value
