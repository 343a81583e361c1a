"""Where the loop gets its batches: from examples alone, or with passages from an index."""

import abc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from realm_jax.data.batches import Batches, Features
from realm_jax.foundations import progress
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration
from realm_jax.retrieval.passage_finder import PassageFinder

_HUB_RANKS = 8  # of a long beam, only the best count
_HUB_QUERIES = 4  # fewer share a passage by chance, and one always does with itself


class BatchSource(abc.ABC):
  """Provides the batch of each step, and what a checkpoint needs to restore the next one.

  Attributes:
    examples: What batches are made of. Their position, behind the next step's batch, is the
      source's; None has no position.
  """

  examples: Any = None

  @abc.abstractmethod
  def begin(self, params) -> None:
    """Takes the next examples and enqueues the device work they need; does not wait."""

  @abc.abstractmethod
  def finish(self) -> tuple[Any, dict[str, float]]:
    """Completes the batch begun; returns it with metrics such as timings."""

  @abc.abstractmethod
  def in_flight(self) -> dict[str, np.ndarray]:
    """Returns numpy arrays from which the next step's batch can be restored."""

  @abc.abstractmethod
  def resume(self, in_flight: dict[str, np.ndarray]) -> Any:
    """Restores the batch that a checkpoint had in flight."""

  def position(self) -> Features:
    """Returns this process's position in its examples."""
    return {} if self.examples is None else self.examples.position()

  def restore(self, position: Features) -> None:
    """Continues from the saved positions of all processes."""
    if self.examples is not None:
      self.examples.restore(position)


class PlainBatches(BatchSource):
  """The examples themselves, for objectives that need no retrieval."""

  def __init__(self, examples: Batches, *, put_on_devices: Callable[[Any], Any]):
    self.examples = examples
    self._put_on_devices = put_on_devices
    self._batch: Any = None

  def begin(self, params) -> None:
    del params
    self._batch = next(self.examples)

  def finish(self) -> tuple[Any, dict[str, float]]:
    started = time.perf_counter()
    batch = self._put_on_devices(self._batch)
    return batch, {"throughput/transfer_seconds": time.perf_counter() - started}

  def in_flight(self) -> dict:
    return dict(self._batch)

  def resume(self, in_flight: dict) -> Any:
    self._batch = in_flight
    return self._put_on_devices(in_flight)


class RetrievedBatches(BatchSource):
  """Retrieves the batch of step t+1 while step t runs, and swaps generations between steps.

  Args:
    make_queries: Returns the queries of a batch of examples, with metrics.
    retriever: Finds their passages in the refresher's current generation.
    put_on_devices: Puts a batch on the devices.
    first_step: Steps taken before the first batch.
    on_swap: Called with the first step that uses a new generation, and the generation.
    stop: Called while waiting for a late generation; True ends the wait.

  Attributes:
    batch: The next step's batch, on the host.
  """

  def __init__(
    self,
    examples: Batches | None,
    make_queries: Callable[[Features], tuple[Any, dict[str, float]]],
    *,
    retriever: PassageFinder,
    refresher: IndexRefresher,
    put_on_devices: Callable[[Any], Any],
    first_step: int,
    on_swap: Callable[[int, LoadedGeneration], None],
    stop: Callable[[], bool],
  ):
    self.examples, self._make_queries = examples, make_queries
    self._retriever, self._refresher = retriever, refresher
    self._put_on_devices = put_on_devices
    self._on_swap, self._stop = on_swap, stop
    self._step = first_step
    self._retrieval: Any = None  # begun, with the metrics of its queries
    self.batch: Any = None

  def begin(self, params) -> None:
    """Enqueues the embedding of the next queries, after swapping in a generation that is ready."""
    with progress.activities.during("index_wait"):
      for swapped in self._refresher.before_step(self._step, stop=self._stop):
        with progress.activities.during("swap"):
          self._retriever.use(swapped)
          self._on_swap(self._step, swapped)
    queries, metrics = self._make_queries(next(self.examples))
    self._retrieval = self._retriever.begin(params, queries), metrics

  def finish(self) -> tuple[Any, dict[str, float]]:
    """Searches and gathers; returns the batch with metrics such as staleness and timings."""
    begun, of_queries = self._retrieval
    self.batch, of_retrieval = self._retriever.finish(begun)
    metrics = {
      **of_queries,
      **of_retrieval,
      "index/generation": self._refresher.current.generation,
      "index/staleness_steps": self._refresher.staleness_steps(self._step),
      "index/age_seconds": self._refresher.age_seconds(),
      "retrieval/hub_share": hub_share(self.in_flight()["passage_ids"]),
    }
    self._step += 1
    started = time.perf_counter()
    placed = self._put_on_devices(self.batch)
    metrics["throughput/transfer_seconds"] = time.perf_counter() - started
    return placed, metrics

  def in_flight(self) -> dict:
    return self._retriever.in_flight(self.batch)

  def resume(self, in_flight: dict) -> Any:
    """Gathers the passages of the batch again, without searching."""
    self.batch = self._retriever.resume(in_flight)
    self._step += 1
    return self._put_on_devices(self.batch)


def hub_share(passage_ids_BxK: np.ndarray) -> float:
  """Returns the share of queries that got the most frequent passage other than the null passage.

  Returns 0 for so few queries that it means nothing.
  """
  if len(passage_ids_BxK) < _HUB_QUERIES:
    return 0.0
  real = passage_ids_BxK[:, :_HUB_RANKS]
  _, counts = np.unique(real[real >= 0], return_counts=True)
  return float(counts.max(initial=0) / len(passage_ids_BxK))
