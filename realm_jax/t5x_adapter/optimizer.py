"""Wraps the optimizers of realm_jax for t5x."""

from typing import cast

import flax.core
import flax.traverse_util
import optax
from t5x import optimizers

from realm_jax.training.optimizer import OptimizerConfig, make_optimizer


class RealmOptimizer(optimizers.OptaxWrapper):
  """An optimizer with a schedule of its own; the trainer's learning rate is only reported."""

  def __init__(self, config: OptimizerConfig, *, num_steps: int):
    super().__init__(_of_frozen_dicts(make_optimizer(config, num_steps=num_steps)))

  def derive_logical_axes(self, optimizer, param_logical_axes):
    """Returns the optimizer with axis names for arrays; moments have their parameter's names."""
    axes = flax.traverse_util.flatten_dict(flax.core.unfreeze(param_logical_axes))
    state = flax.traverse_util.flatten_dict(optimizer.state_dict()["state"])

    def axes_of(path):
      ends = (path[first:] for first in range(len(path)))
      return next((axes[end] for end in ends if end in axes), None)

    derived = flax.traverse_util.unflatten_dict({path: axes_of(path) for path in state})
    return optimizer.restore_state(
      {"target": flax.core.unfreeze(param_logical_axes), "state": derived}
    )


def _of_frozen_dicts(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
  """Wraps a transformation of plain dictionaries for t5x's frozen ones."""

  def init(params):
    return transformation.init(flax.core.unfreeze(params))

  def update(updates, state, params=None):
    params = None if params is None else flax.core.unfreeze(params)
    found, state = transformation.update(flax.core.unfreeze(updates), state, params)
    return flax.core.freeze(cast(dict, found)), state

  return optax.GradientTransformation(init, update)
