"""Metrics as CLU metrics, which t5x merges over steps."""

from collections.abc import Callable, Mapping

import clu.metrics
import jax.numpy as jnp
import numpy as np
from t5x import metrics as t5x_metrics

from realm_jax.devices.datatypes import Array, Mean

Metrics = dict[str, clu.metrics.Metric]

_average: Callable[..., clu.metrics.Metric] = clu.metrics.Average


def of_batch(figures: Mapping[str, Mean], *, batch_size: int) -> Metrics:
  """Makes the metrics of a batch on the devices; its size includes padding."""
  return {
    **{name: _average(total=mean.total, count=mean.count) for name, mean in figures.items()},
    "timing/steps_per_second": t5x_metrics.StepsPerTime.from_model_output(),
    "timing/seqs_per_second": t5x_metrics.TimeRate.from_model_output(
      numerator=jnp.asarray(batch_size, jnp.float32)
    ),
  }


def of_step(figures: Mapping[str, Array | float]) -> Metrics:
  """Makes the metrics of one step on the host."""
  one = np.float32(1)
  return {name: _average(total=np.float32(value), count=one) for name, value in figures.items()}
