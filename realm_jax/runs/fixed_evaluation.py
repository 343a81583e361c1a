"""Evaluates a model on the same masked queries throughout training."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import jax

from realm_jax import processes
from realm_jax.data import batches
from realm_jax.datatypes import Mean
from realm_jax.retrieval.retriever import Retriever


class FixedEvaluation:
  """Evaluates fixed queries with the current parameters and index generation.

  Args:
    features: Batches of masked queries, the same in every process; read once and kept.
    retriever: The training's retriever, which searches the generation in use.
    figures: `(params, placed RetrievedBatch) -> metrics` of a batch.

  Raises:
    ValueError: If there are no queries.
  """

  def __init__(
    self,
    features: Iterable[batches.Features],
    *,
    max_batches: int,
    retriever: Retriever,
    figures: Callable[[dict, Any], dict[str, Mean]],
    place: Callable[[Any], Any],
  ):
    self._batches = [
      batches.masked_queries(batch) for batch in itertools.islice(features, max_batches)
    ]
    if not self._batches:
      raise ValueError("no queries to evaluate: the corpus has no sentence with a salient span")
    self._retriever = retriever
    self._figures = figures
    self._place = place
    self.first_batch: Any = None  # of the last evaluation, on the host

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics over all batches, named `eval/...`."""
    rows = []
    for queries in self._batches:
      own = jax.tree.map(processes.own_rows, queries)
      batch, _ = self._retriever.finish(self._retriever.begin(params, own))
      if not rows:
        self.first_batch = batch
      rows.append(self._figures(params, self._place(batch)))
    sums = jax.tree.map(lambda *parts: sum(parts), *jax.device_get(rows))
    return {f"eval/{name}": float(mean.value) for name, mean in sums.items()}
