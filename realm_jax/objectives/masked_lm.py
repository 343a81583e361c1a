"""BERT's masked language modelling: -log p of the masked words, averaged over the masks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.data import batches
from realm_jax.devices.datatypes import Lengths, MaskedQueries, Mean
from realm_jax.models import lengths
from realm_jax.objectives.objective import Loss, Metrics, Objective, dropout_keywords, grouped


@dataclasses.dataclass(frozen=True)
class MaskedLm(Objective):
  """The masked words of a batch of masked queries, without retrieval."""

  def build(self, model: Any) -> Loss:
    """Returns the objective of a `KnowledgeAugmentedEncoder`."""

    def outputs(params, texts: MaskedQueries, key) -> jax.Array:
      inputs = texts.query, texts.mlm_positions_BxM
      buckets = texts.query_buckets
      return model.apply({"params": params}, *inputs, buckets=buckets, **dropout_keywords(key))

    def score(logits_BxMxV, texts: MaskedQueries) -> Metrics:
      metrics = masked_lm(logits_BxMxV, texts.mlm_targets_BxM, texts.mlm_weights_BxM)
      return grouped(metrics, "loss")

    def ways(texts: MaskedQueries, of_corpus: Lengths) -> lengths.Ways:
      return lengths.ways(texts, query=lengths.Sequences(texts.query, of_corpus))

    return Loss(outputs, score, rows=batches.masked_queries, ways=ways)


def masked_lm(
  logits_BxMxV: jax.Array, targets_BxM: jax.Array, weights_BxM: jax.Array
) -> dict[str, Mean]:
  """Returns `loss` and `accuracy` of one batch, as means over its masks.

  Args:
    targets_BxM: Ids of the masked words.
    weights_BxM: 1 for a mask, 0 for padding.
  """
  log_probs_BxMxV = jax.nn.log_softmax(logits_BxMxV.astype(jnp.float32))
  log_probs_BxM = jnp.take_along_axis(log_probs_BxMxV, targets_BxM[..., None], axis=-1)[..., 0]
  right_BxM = jnp.argmax(logits_BxMxV, axis=-1) == targets_BxM
  return {"loss": Mean.of(-log_probs_BxM, weights_BxM), "accuracy": Mean.of(right_BxM, weights_BxM)}
