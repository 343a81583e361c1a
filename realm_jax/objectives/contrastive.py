"""Contrastive training: tell a query's passage from all others in the batch.

The loss is the negative log softmax of the positive's score over the passages of the whole batch,
of all devices if it is sharded. A query has K passages: its positive and K-1 hard negatives. All of
them are negatives for the other queries.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.data import batches
from realm_jax.devices.datatypes import Array, Mean
from realm_jax.objectives.objective import Figures, Loss, Objective, dropout_keywords, grouped

_UNIT_LENGTH_SCALE = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
  """Distinguishes the passages of pairs, which are the batch or its `pairs`.

  They have `query` `[B, L]`, and `passage` and `passage_segments` `[B, K, P]` or, with one passage
  per query, `[B, P]`. The optional `passage_uid` `[B, K]` and `also_right` `[B, O]` tell which
  passages are not negatives.

  Attributes:
    scale: Multiplies the scores in the softmax. None uses 20 for embeddings of unit length, as
      sentence encoders do, because their scores differ too little otherwise, and 1 for others.
  """

  scale: float | None = None

  def build(self, model: Any) -> Loss:
    """Returns the objective of a model that has `encode_pairs` and `pair_scores`.

    Raises:
      ValueError: If its dual encoder never learns.
    """
    if not getattr(model, "dual_encoder_learns", True):
      raise ValueError("a Contrastive term for a dual encoder that never learns; omit it")
    scale = self.scale
    if scale is None:
      scale = _UNIT_LENGTH_SCALE if model.is_unit_length else 1.0

    def outputs(params, pairs, key) -> tuple[Any, Any]:
      ids, segments = pairs["passage"], pairs["passage_segments"]
      length = ids.shape[-1]
      query, passage = model.apply(
        {"params": params},
        batches.tokens(pairs["query"]),
        batches.tokens(ids.reshape(-1, length), segments.reshape(-1, length)),
        method="encode_pairs",
        **dropout_keywords(key),
      )
      rows = (len(ids), -1)  # of queries
      return query, jax.tree.map(lambda leaf: leaf.reshape(*rows, *leaf.shape[1:]), passage)

    def score(found: tuple[Any, Any], pairs) -> Figures:
      query, passage = found
      passage = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), passage)
      scores_BxF = scale * model.apply({}, query, passage, method="pair_scores")
      shape = (len(scores_BxF), scores_BxF.shape[1] // len(scores_BxF))
      compared_BxF = compared_passages(
        (pairs["passage"] != 0).any(axis=-1).reshape(shape),
        pairs.get("passage_uid", jnp.zeros(shape, jnp.int32)),
        pairs.get("also_right", jnp.zeros((shape[0], 0), jnp.int32)),
      )
      return grouped(contrastive(scores_BxF, compared_BxF), "loss")

    return Loss(outputs, score, compares_rows=True, rows=_pairs)


def _pairs(batch) -> Mapping[str, Array]:
  pairs = batch if isinstance(batch, Mapping) else batch.pairs
  if pairs is None:
    raise ValueError("a Contrastive term, but the batches have no pairs; pair their source")
  return pairs


def contrastive(scores_BxF: jax.Array, compared_BxF: jax.Array) -> dict[str, Mean]:
  """Returns `loss`, `accuracy` and `mean_reciprocal_rank` of the positives, as means over queries.

  A tie counts against the positive, so that identical embeddings do not look accurate.

  Args:
    scores_BxF: Scores of the B × K passages; the K of a query are adjacent, its positive
      first.
    compared_BxF: Which passages each query is compared with, from `compared_passages`.
      A query that is not compared with its positive is padding.
  """
  num_queries, num_passages = scores_BxF.shape
  positive_BxF = _is_positive(num_queries, num_passages // num_queries)
  lowest = jnp.finfo(jnp.float32).min
  scores_BxF = jnp.where(positive_BxF | compared_BxF, scores_BxF, lowest)
  positive_scores_B = jnp.sum(scores_BxF, axis=1, where=positive_BxF)
  log_probs_B = positive_scores_B - jax.nn.logsumexp(scores_BxF, axis=1)
  ranks_B = jnp.sum(scores_BxF >= positive_scores_B[:, None], axis=1)
  weights_B = jnp.any(positive_BxF & compared_BxF, axis=1).astype(jnp.float32)
  return {
    "loss": Mean.of(-log_probs_B, weights_B),
    "accuracy": Mean.of(ranks_B == 1, weights_B),
    "mean_reciprocal_rank": Mean.of(1.0 / ranks_B, weights_B),
  }


def compared_passages(real_BxK: jax.Array, uid_BxK: jax.Array, right_BxO: jax.Array) -> jax.Array:
  """Returns which of the B × K passages each query is compared with, `compared_BxF`.

  A positive of a query is never its negative, wherever in the batch it occurs.

  Args:
    real_BxK: False for empty slots.
    uid_BxK: Unique ids of the passages; 0 if unknown.
    right_BxO: Unique ids of further positives of each query; 0 for none.
  """
  uid_1xF = uid_BxK.reshape(1, -1)
  right_BxO = jnp.concatenate([uid_BxK[:, :1], right_BxO], axis=1)
  right_BxF = (uid_1xF != 0) & jnp.any(right_BxO[:, None, :] == uid_1xF[:, :, None], axis=2)
  return real_BxK.reshape(1, -1) & (_is_positive(*uid_BxK.shape) | ~right_BxF)


def _is_positive(num_queries: int, num_passages: int) -> jax.Array:
  """Returns which of the flattened passages is each query's first, `positive_BxF`."""
  first_B = num_passages * jnp.arange(num_queries)
  return first_B[:, None] == jnp.arange(num_queries * num_passages)[None, :]
