"""Figures as CLU metrics, which t5x merges over steps and microbatches."""

from collections.abc import Mapping

import clu.metrics
import jax
import jax.numpy as jnp
import numpy as np
from t5x import metrics as t5x_metrics

from realm_jax.datatypes import Array

Metrics = dict[str, clu.metrics.Metric]


def of_batch(
  figures: Mapping[str, jax.Array], *, num_weighted: jax.Array, batch_size: int
) -> Metrics:
  """Makes the metrics of a batch on the devices.

  Args:
    figures: means over the batch.
    num_weighted: examples that the means are of; batches count by them.
    batch_size: examples, padding included.
  """
  weight = jnp.asarray(num_weighted, jnp.float32)
  return {
    **{
      name: clu.metrics.Average(total=value * weight, count=weight)
      for name, value in figures.items()
    },
    "timing/steps_per_second": t5x_metrics.StepsPerTime.from_model_output(),
    "timing/seqs_per_second": t5x_metrics.TimeRate.from_model_output(
      numerator=jnp.asarray(batch_size, jnp.float32)
    ),
  }


def of_step(figures: Mapping[str, Array | float]) -> Metrics:
  """Makes the metrics of one step's figures on the host."""
  one = np.float32(1)
  return {
    name: clu.metrics.Average(total=np.float32(value), count=one) for name, value in figures.items()
  }
