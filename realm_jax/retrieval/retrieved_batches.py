"""Batches for retrieval-augmented training: queries from a task, passages from an index."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from realm_jax.foundations import progress
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration
from realm_jax.retrieval.passage_finder import PassageFinder

_HUB_RANKS = 8  # of a long beam, only the best count
_HUB_QUERIES = 4  # fewer share a passage by chance, and one always does with itself


@dataclasses.dataclass(eq=False)
class RetrievedBatches:
  """Retrieves the batch of step t+1 while step t runs, and swaps generations between steps.

  Attributes:
    queries: Yields the queries of a batch, with metrics of the input pipeline; has their position.
    retriever: Finds their passages in the refresher's current generation.
    first_step: Steps taken before the first batch.
    on_swap: Called with the first step that uses a new generation, and the generation.
    stop: Called while waiting for a late generation; True ends the wait.
    batch: The next step's batch, on the host.
  """

  queries: Any
  _: dataclasses.KW_ONLY
  retriever: PassageFinder
  refresher: IndexRefresher
  place: Callable[[Any], Any]
  first_step: int
  on_swap: Callable[[int, LoadedGeneration], None]
  stop: Callable[[], bool]
  batch: Any = dataclasses.field(default=None, init=False)

  def __post_init__(self):
    self._step = self.first_step
    self._begun: Any = None
    self._figures: dict[str, float] = {}

  def begin(self, params) -> None:
    """Enqueues the embedding of the next queries, after swapping in a generation that is ready."""
    with progress.activities.during("index_wait"):
      for swapped in self.refresher.before_step(self._step, stop=self.stop):
        with progress.activities.during("swap"):
          self.retriever.use(swapped)
          self.on_swap(self._step, swapped)
    queries, self._figures = next(self.queries)
    self._begun = self.retriever.begin(params, queries)

  def finish(self) -> tuple[Any, dict[str, float]]:
    """Searches and gathers; returns the batch with metrics such as staleness and timings."""
    self.batch, retrieval = self.retriever.finish(self._begun)
    found = self.retriever.in_flight(self.batch)
    figures = {
      **self._figures,
      **retrieval,
      "index/generation": self.refresher.current.generation,
      "index/staleness_steps": self.refresher.staleness_steps(self._step),
      "index/age_seconds": self.refresher.age_seconds(),
      "retrieval/hub_share": hub_share(found["passage_ids"]),
    }
    self._step += 1
    started = time.perf_counter()
    placed = self.place(self.batch)
    figures["throughput/transfer_seconds"] = time.perf_counter() - started
    return placed, figures

  def in_flight(self) -> dict:
    """Returns numpy arrays from which the next step's batch can be restored."""
    return self.retriever.in_flight(self.batch)

  def resume(self, in_flight: dict) -> Any:
    """Gathers the batch that a checkpoint had in flight again, without searching."""
    self.batch = self.retriever.resume(in_flight)
    self._step += 1
    return self.place(self.batch)

  def position(self) -> dict[str, np.ndarray]:
    """Returns the position of the queries."""
    return self.queries.position()

  def restore(self, position: dict[str, np.ndarray]) -> None:
    """Continues with the queries behind a saved position."""
    self.queries.restore(position)


def hub_share(passage_ids_BxK: np.ndarray) -> float:
  """Returns the share of queries that got the most frequent passage other than the null passage.

  Returns 0 for so few queries that it means nothing.
  """
  if len(passage_ids_BxK) < _HUB_QUERIES:
    return 0.0
  real = passage_ids_BxK[:, :_HUB_RANKS]
  _, counts = np.unique(real[real >= 0], return_counts=True)
  return float(counts.max(initial=0) / len(passage_ids_BxK))
