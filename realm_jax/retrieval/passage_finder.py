"""Finds the passages of a batch in two phases, so the host searches while the device trains."""

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from realm_jax import processes
from realm_jax.datatypes import Array
from realm_jax.retrieval.index_refresher import LoadedGeneration


@dataclasses.dataclass(eq=False, kw_only=True)
class PassageFinder(abc.ABC):
  """Makes the batch of a task from its queries.

  Attributes:
    encode_query: A jitted `(params, Tokens [B, L]) -> [B, E]`.
  """

  encode_query: Callable[..., Array]

  def begin(self, params, queries) -> tuple[Any, Array]:
    """Enqueues the query embeddings; does not wait."""
    return queries, self.encode_query(params, queries.query)

  def finish(self, begun: tuple[Any, Array]) -> tuple[Any, dict[str, float]]:
    """Waits for the embeddings, searches and gathers; returns the batch with metrics."""
    queries, embeddings = begun
    started = time.perf_counter()
    queries_BxE = processes.local_rows(embeddings).astype(np.float32)
    embedded = time.perf_counter()
    found, metrics = self.search(queries_BxE, queries)
    searched = time.perf_counter()
    batch = self.gather(queries, found)
    gathered = time.perf_counter()
    return batch, {
      **metrics,
      # Includes waiting for the query embeddings to leave the device.
      "throughput/query_embedding_wait_seconds": embedded - started,
      "throughput/search_seconds": searched - embedded,
      "throughput/gather_seconds": gathered - searched,
    }

  @abc.abstractmethod
  def use(self, loaded: LoadedGeneration) -> None:
    """Switches to another generation."""

  @abc.abstractmethod
  def search(self, queries_BxE: np.ndarray, queries) -> tuple[Any, dict[str, float]]:
    """Returns the passages found for each query, with metrics."""

  @abc.abstractmethod
  def gather(self, queries, passages, /) -> Any:
    """Returns the batch of queries and the passages found for them."""

  @abc.abstractmethod
  def in_flight(self, batch) -> dict:
    """Returns what `resume` needs to restore a batch, in numpy."""

  @abc.abstractmethod
  def resume(self, in_flight: dict) -> Any:
    """Gathers the batch that was in flight at a checkpoint, without searching again."""
