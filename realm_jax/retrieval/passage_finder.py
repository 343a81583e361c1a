"""Finds the passages of a batch in two phases, so the host searches while the device trains.

What an index found is ranked again where an encoder can compute its scores exactly.
"""

import abc
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.corpus.passage_store import Passages
from realm_jax.devices import processes
from realm_jax.devices.datatypes import Array, SearchResults, Tokens
from realm_jax.index import searcher
from realm_jax.index.searcher import Searcher
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import passage_tokens

_ROWS = 16  # queries at once; their words are compared with those of all their candidates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rescoring:
  """Ranks the candidates of queries by an encoder's own scores.

  Attributes:
    num_candidates: Passages to search for, if fewer are wanted.
    params_of: Returns what scores depend on of the encoder's parameters.
    program: Jitted, `(params, Tokens [B, L], Tokens [B, R, P], scores_BxR) -> scores_BxR`.
    store: The corpus of the index.
    passage_length: P.
  """

  num_candidates: int
  params_of: Callable[[Mapping], Mapping]
  program: Callable
  store: Passages
  passage_length: int

  def num_found(self, k: int) -> int:
    """Returns the number of passages to search for in order to keep `k`."""
    return max(k, min(self.num_candidates, len(self.store)))

  def kept(self, params: dict) -> Any:
    """Returns what is needed of a model's parameters, in arrays that no train step takes."""
    return jax.tree.map(jnp.copy, self.params_of(params["dual_encoder"]))

  def __call__(self, kept: Any, query: Tokens, found: SearchResults, *, k: int) -> SearchResults:
    """Returns the best `k` of the candidates that were found, best first.

    Args:
      kept: Parameters from `kept`, of the encoder that embedded the queries.
      query: `Tokens` `[B, L]` of this process, in numpy.
    """
    params = jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0)), kept)
    parts = []
    for start in range(0, len(found.ids_BxK), _ROWS):
      rows = slice(start, start + _ROWS)
      ids_BxR = found.ids_BxK[rows]
      passage = passage_tokens(self.store, ids_BxR, length=self.passage_length)
      parts.append(self.program(params, query[rows], passage, found.scores_BxK[rows]))
    scores_BxR = np.where(found.ids_BxK >= 0, np.concatenate(parts), -np.inf)
    order_BxK = np.argsort(-scores_BxR, axis=1, kind="stable")[:, :k]
    return SearchResults(
      np.take_along_axis(found.ids_BxK, order_BxK, axis=1),
      np.take_along_axis(scores_BxR, order_BxK, axis=1).astype(np.float32),
    )


class Begun(NamedTuple):
  """Queries that the devices have been sent to embed, and perhaps to search.

  Attributes:
    asked: What is embedded; the queries, and perhaps more behind them.
    rescoring: What ranking the candidates again needs; see `Rescoring.kept`.
    found: Completes the search.
  """

  queries: Any
  asked: Tokens
  embeddings: Array
  rescoring: Any
  found: Callable[[], SearchResults]


@dataclasses.dataclass(eq=False, kw_only=True)
class PassageFinder(abc.ABC):
  """Makes the batch of a task from its queries.

  Attributes:
    encode_query: A jitted `(params, Tokens [B, L]) -> [B, E]`.
    searcher: Searches an index generation, whose rows are those of the corpus; `use` replaces it
      between retrievals.
    rescoring: Ranks candidates again by exact scores; None keeps what was found.
  """

  encode_query: Callable[..., Array]
  searcher: Searcher = dataclasses.field(init=False)
  rescoring: Rescoring | None = None

  def begin(self, params, queries) -> Begun:
    """Enqueues the query embeddings, and a search on the devices behind them; does not wait."""
    asked = self.asked(queries)
    embeddings = self.encode_query(params, asked)
    kept, num_found = None, self.num_found
    if self.rescoring is not None:
      kept, num_found = self.rescoring.kept(params), self.rescoring.num_found(num_found)
    found = searcher.begin(self.searcher, embeddings, num_found)
    return Begun(queries, asked, embeddings, kept, found)

  def search(self, begun: Begun) -> tuple[Any, dict[str, float]]:
    """Waits for the embeddings and searches; returns the passages of each query with metrics."""
    started = time.perf_counter()
    queries_BxE = processes.local_rows(begun.embeddings).astype(np.float32)
    embedded = time.perf_counter()
    found = begun.found()
    if self.rescoring is not None:
      found = self.rescoring(begun.rescoring, begun.asked, found, k=self.num_found)
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

  def asked(self, queries) -> Tokens:
    """Returns what to embed and search: the queries, and whatever `select` takes behind them."""
    return queries.query

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
