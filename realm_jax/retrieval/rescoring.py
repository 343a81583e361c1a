"""Replaces the scores of what an index found, where an encoder can compute them exactly."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.corpus.passage_store import Passages
from realm_jax.devices.datatypes import SearchResults, Tokens
from realm_jax.retrieval.joint_inputs import passage_tokens

_ROWS = 16  # queries at once; their words are compared with those of all their candidates


class Rescorer(Protocol):
  """What an encoder says of its exact scores; see `EncoderConfig`."""

  @property
  def num_candidates(self) -> int: ...

  def rescoring_params(self, params: Mapping) -> Mapping: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rescoring:
  """Ranks the candidates of queries by an encoder's own scores.

  Attributes:
    encoder: Says how many candidates it wants, and which parameters scores depend on.
    program: Jitted, `(params, Tokens [B, L], Tokens [B, R, P], scores_BxR) -> scores_BxR`.
    store: The corpus of the index.
    passage_length: P.
  """

  encoder: Rescorer
  program: Callable
  store: Passages
  passage_length: int

  def num_found(self, k: int) -> int:
    """Returns the number of passages to search for in order to keep `k`."""
    return max(k, min(self.encoder.num_candidates, len(self.store)))

  def kept(self, params: dict) -> Any:
    """Returns what is needed of the encoder's parameters, in arrays that no train step takes."""
    return jax.tree.map(jnp.copy, self.encoder.rescoring_params(params["dual_encoder"]))

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
