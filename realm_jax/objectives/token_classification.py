"""Token classification: -log p of each labelled token's tag, averaged over the labelled tokens."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.data import batches
from realm_jax.devices.datatypes import Mean
from realm_jax.training.objective import Figures, Loss, Objective, dropout_keywords, grouped


@dataclasses.dataclass(frozen=True)
class MaskedLm(Objective):
  """The masked words of `MaskedQueryConverter`'s features, without retrieval."""

  def build(self, model: Any) -> Loss:
    """Returns the objective of a `KnowledgeAugmentedEncoder`."""

    def outputs(params, batch, key) -> jax.Array:
      query = batches.tokens(batch["query"])
      return model.apply({"params": params}, query, batch["mlm_positions"], **dropout_keywords(key))

    def score(logits_BxMxV, batch) -> Figures:
      labels_BxM = jnp.where(batch["mlm_weights"] > 0, batch["mlm_targets"] + 1, 0)
      return grouped(token_classification(logits_BxMxV, labels_BxM), "loss")

    return Loss(outputs, score)


def token_classification(logits_BxLxY: jax.Array, labels_BxL: jax.Array) -> dict[str, Mean]:
  """Returns `loss` and `accuracy` of one batch, as means over the labelled tokens.

  Args:
    labels_BxL: 1 + the tag, or 0 for a token without a label, which does not count.
  """
  weights_BxL = (labels_BxL > 0).astype(jnp.float32)
  tags_BxL = jnp.maximum(labels_BxL - 1, 0)
  log_probs_BxLxY = jax.nn.log_softmax(logits_BxLxY.astype(jnp.float32))
  own_BxL = jnp.take_along_axis(log_probs_BxLxY, tags_BxL[..., None], axis=-1)[..., 0]
  right_BxL = jnp.argmax(logits_BxLxY, axis=-1) == tags_BxL
  return {"loss": Mean.of(-own_BxL, weights_BxL), "accuracy": Mean.of(right_BxL, weights_BxL)}
