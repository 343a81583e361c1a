"""Contrastive training: tell a query's passage from all others in the batch.

The loss is the negative log softmax of the positive's score over the passages of the whole batch,
of all devices if it is sharded.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.data import batches
from realm_jax.devices.datatypes import Lengths, Mean, Pairs
from realm_jax.foundations import choices
from realm_jax.models import lengths
from realm_jax.objectives.objective import Loss, Metrics, Objective, dropout_keywords, grouped

_UNIT_LENGTH_SCALE = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
  """Distinguishes the passages of pairs, which are the batch or its `pairs`.

  They have `query` `[B, L]`, and `passage` and `passage_segments` `[B, P]`. With the optional
  `passage_uid` `[B, 1]`, a passage that occurs twice is no negative of its queries.

  Attributes:
    scale: Multiplies the scores in the softmax. None uses 20 for embeddings of unit length, as
      sentence encoders do, because their scores differ too little otherwise, and 1 for others.
  """

  scale: choices.Positive | None = None

  def build(self, model: Any) -> Loss:
    """Returns the objective of a model that has `encode_pairs`."""
    if not getattr(model, "dual_encoder_learns", True):
      raise ValueError("a Contrastive term for a dual encoder that never learns; omit it")
    scale = self.scale
    if scale is None:
      config = getattr(model, "dual_encoder_config", None) or model.config
      scale = _UNIT_LENGTH_SCALE if config.unit_length else 1.0

    def outputs(params, pairs: Pairs, key) -> tuple[Any, Any]:
      return model.apply({"params": params}, pairs, method="encode_pairs", **dropout_keywords(key))

    def score(encoded: tuple[Any, Any], pairs: Pairs) -> Metrics:
      scores_BxB = scale * jnp.einsum("BE,FE->BF", *encoded)
      real_B = pairs.passage.mask.any(axis=1)
      return grouped(contrastive(scores_BxB, compared_passages(real_B, pairs.uid_B)), "loss")

    return Loss(outputs, score, compares_rows=True, rows=_pairs, ways=_ways)


def _ways(pairs: Pairs, of_corpus: Lengths) -> lengths.Ways:
  return lengths.ways(
    pairs,
    passage=lengths.Sequences(pairs.passage, of_corpus),
    query=lengths.Sequences(pairs.query, lengths.of_queries(of_corpus, pairs.query.shape[-1])),
  )


def _pairs(batch) -> Pairs:
  pairs = batch if isinstance(batch, Mapping) else batch.pairs
  if pairs is None:
    raise ValueError("a Contrastive term, but the batches have no pairs; pair their source")
  passage = batches.tokens(pairs["passage"], pairs["passage_segments"])
  uid_B = pairs["passage_uid"][:, 0] if "passage_uid" in pairs else jnp.zeros(len(passage.ids), int)
  return Pairs(query=batches.tokens(pairs["query"]), passage=passage, uid_B=uid_B)


def contrastive(scores_BxB: jax.Array, compared_BxB: jax.Array) -> dict[str, Mean]:
  """Returns `loss`, `accuracy` and `mean_reciprocal_rank` of the positives, as means over queries.

  A tie counts against the positive, so that identical embeddings do not look accurate.

  Args:
    scores_BxB: Scores of queries (rows) and passages; the positives are on the diagonal.
    compared_BxB: Which passages each query is compared with, from `compared_passages`.
      A query that is not compared with its positive is padding.
  """
  positive_BxB = jnp.eye(len(scores_BxB), dtype=bool)
  lowest = jnp.finfo(jnp.float32).min
  scores_BxB = jnp.where(positive_BxB | compared_BxB, scores_BxB, lowest)
  positive_scores_B = jnp.sum(scores_BxB, axis=1, where=positive_BxB)
  log_probs_B = positive_scores_B - jax.nn.logsumexp(scores_BxB, axis=1)
  ranks_B = jnp.sum(scores_BxB >= positive_scores_B[:, None], axis=1)
  weights_B = jnp.any(positive_BxB & compared_BxB, axis=1).astype(jnp.float32)
  return {
    "loss": Mean.of(-log_probs_B, weights_B),
    "accuracy": Mean.of(ranks_B == 1, weights_B),
    "mean_reciprocal_rank": Mean.of(1.0 / ranks_B, weights_B),
  }


def compared_passages(real_B: jax.Array, uid_B: jax.Array) -> jax.Array:
  """Returns which passages of the batch each query is compared with, `[B, B]`.

  The positive of a query is never its negative, wherever else in the batch it occurs.

  Args:
    real_B: False for padding.
    uid_B: Unique ids of the positives; 0 if unknown.
  """
  same_BxB = (uid_B != 0)[:, None] & (uid_B[:, None] == uid_B[None])
  return real_B[None] & (jnp.eye(len(uid_B), dtype=bool) | ~same_BxB)
