"""Finds the passages of a batch in two phases, so the host searches while the device trains."""

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from realm_jax.devices import processes
from realm_jax.devices.datatypes import Array, SearchResults
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.searcher import Searcher
from realm_jax.retrieval.index_refresher import LoadedGeneration


class Begun(NamedTuple):
  """Queries that the devices have been sent to embed, and perhaps to search.

  Attributes:
    found: Completes the search.
  """

  queries: Any
  embeddings: Array
  found: Callable[[], SearchResults]


@dataclasses.dataclass(eq=False, kw_only=True)
class PassageFinder(abc.ABC):
  """Makes the batch of a task from its queries.

  Attributes:
    encode_query: A jitted `(params, Tokens [B, L]) -> [B, E]`.
    searcher: Searches an index generation, whose rows are those of the corpus; `use` replaces it
      between retrievals.
  """

  encode_query: Callable[..., Array]
  searcher: Searcher = dataclasses.field(init=False)

  def begin(self, params, queries) -> Begun:
    """Enqueues the query embeddings, and a search on the devices behind them; does not wait."""
    embeddings = self.encode_query(params, queries.query)
    found = searcher.begin(self.searcher, embeddings, self.num_found)
    return Begun(queries, embeddings, found)

  def search(self, begun: Begun) -> tuple[Any, dict[str, float]]:
    """Waits for the embeddings and searches; returns the passages of each query with metrics."""
    started = time.perf_counter()
    queries_BxE = processes.local_rows(begun.embeddings).astype(np.float32)
    embedded = time.perf_counter()
    found = begun.found()
    passages, metrics = self.select(found, queries_BxE, begun.queries)
    return passages, {
      **metrics,
      # Includes waiting for the query embeddings to leave the device.
      "throughput/query_embedding_wait_seconds": embedded - started,
      "throughput/search_seconds": time.perf_counter() - embedded,
    }

  def finish(self, begun: Begun) -> tuple[Any, dict[str, float]]:
    """Searches and gathers; returns the batch with metrics."""
    passages, metrics = self.search(begun)
    started = time.perf_counter()
    batch = self.gather(begun.queries, passages)
    return batch, {**metrics, "throughput/gather_seconds": time.perf_counter() - started}

  @property
  @abc.abstractmethod
  def num_found(self) -> int:
    """The number of passages to search for."""

  @abc.abstractmethod
  def use(self, loaded: LoadedGeneration) -> None:
    """Switches to another generation."""

  @abc.abstractmethod
  def select(
    self, found: SearchResults, queries_BxE: np.ndarray, queries, /
  ) -> tuple[Any, dict[str, float]]:
    """Returns the passages to use of those found for each query, with metrics."""

  @abc.abstractmethod
  def gather(self, queries, passages, /) -> Any:
    """Returns the batch of queries and the passages found for them."""

  @abc.abstractmethod
  def in_flight(self, batch) -> dict:
    """Returns what `resume` needs to restore a batch, in numpy."""

  @abc.abstractmethod
  def resume(self, in_flight: dict) -> Any:
    """Gathers the batch that was in flight at a checkpoint, without searching again."""
