"""A training loop of your own, with any optimizer of Optax."""

from collections.abc import Iterable
from typing import Any

import flax.linen as nn
import jax
import optax

import realm_jax
from realm_jax.objectives.objective import LOSS


def train(
  training: realm_jax.Pretraining, batches: Iterable[Any], optimizer: optax.GradientTransformation
) -> tuple[dict, list[float]]:
  """Minimises the objective of a training on some batches; returns parameters and losses."""
  objective = training.minimised

  @jax.jit
  def step(params, opt_state, batch, key):
    gradients, metrics = objective.gradients(params, batch, key, parts=1)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, metrics[LOSS].value

  key = jax.random.key(training.run.seed)
  params = nn.unbox(jax.jit(training.init_params)(key))
  opt_state, losses = optimizer.init(params), []
  for number, batch in enumerate(batches):
    params, opt_state, loss = step(params, opt_state, batch, jax.random.fold_in(key, number))
    losses.append(float(loss))
  return params, losses
