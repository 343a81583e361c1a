"""An objective of your own: REALM's, and a term that keeps p(z|x) from collapsing onto one passage.

From Python, `Pretraining(objective=spread_out(weight=0.1))`; in a gin file,

  from __gin__ import dynamic_registration
  from examples import own_objective
  from realm_jax.training.recipes import pretraining
  pretraining.Pretraining.objective = @own_objective.spread_out()
"""

import dataclasses

import jax
import jax.numpy as jnp

import realm_jax
from realm_jax.devices.datatypes import Mean, RetrievedBatch
from realm_jax.objectives.objective import LOSS, dropout_keywords


@dataclasses.dataclass(frozen=True)
class Concentration(realm_jax.Objective):
  """The mean of Σ_z p(z|x) log p(z|x) over the passages read, the negative entropy."""

  def build(self, model) -> realm_jax.Loss:
    def outputs(params, batch: RetrievedBatch, key) -> jax.Array:
      return model.apply({"params": params}, batch, **dropout_keywords(key)).scores_BxK

    def score(scores_BxK: jax.Array, batch: RetrievedBatch) -> dict[str, Mean]:
      lowest = jnp.finfo(scores_BxK.dtype).min
      log_probs_BxK = jax.nn.log_softmax(jnp.where(batch.valid_BxK, scores_BxK, lowest))
      concentration_B = jnp.sum(jnp.exp(log_probs_BxK) * log_probs_BxK, axis=1)
      return {LOSS: Mean.of(concentration_B, jnp.ones_like(concentration_B))}

    return realm_jax.Loss(outputs, score)


def spread_out(*, weight: float = 0.1) -> realm_jax.Objective:
  """Returns the sum of both; its metrics have `concentration/total` as well."""
  return realm_jax.MarginalLikelihood() + weight * Concentration()
