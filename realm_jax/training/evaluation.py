"""Evaluates a model on the same masked queries throughout training."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import jax

from realm_jax.data import batches
from realm_jax.devices import processes
from realm_jax.devices.datatypes import MaskedQueries, Mean, RetrievedBatch


class FixedEvaluation:
  """Evaluates fixed queries with the current parameters and what they retrieve.

  Args:
    features: Batches of masked queries, the same in every process; read once and kept.
    retrieve: `(params, queries) -> batch`, on the host: finds passages as the training does.
    figures: `(params, placed RetrievedBatch) -> metrics` of a batch.

  Raises:
    ValueError: If there are no queries.
  """

  def __init__(
    self,
    features: Iterable[batches.Features],
    *,
    max_batches: int,
    retrieve: Callable[[dict, MaskedQueries], RetrievedBatch],
    figures: Callable[[dict, Any], dict[str, Mean]],
    place: Callable[[Any], Any],
  ):
    self._batches = [
      batches.masked_queries(batch) for batch in itertools.islice(features, max_batches)
    ]
    if not self._batches:
      raise ValueError("no queries to evaluate: the corpus has no sentence with a salient span")
    self._retrieve = retrieve
    self._figures = figures
    self._place = place
    self.first_batch: Any = None  # of the last evaluation, on the host

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics over all batches, named `eval/...`."""
    rows = []
    for queries in self._batches:
      own = jax.tree.map(processes.own_rows, queries)
      batch = self._retrieve(params, own)
      if not rows:
        self.first_batch = batch
      rows.append(self._figures(params, self._place(batch)))
    sums = jax.tree.map(lambda *parts: sum(parts), *jax.device_get(rows))
    return {f"eval/{name}": float(mean.value) for name, mean in sums.items()}
