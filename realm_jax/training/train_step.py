"""One training step: loss, gradients, update. Non-finite steps are counted and change nothing.

Schedules advance over skipped steps too: like data order and dropout, they are functions of the
number of steps, so a run of `num_steps` always ends with the configured rate.
"""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from realm_jax.devices.datatypes import Array
from realm_jax.models.dropout_keys import dropout_key
from realm_jax.objectives.objective import LOSS, Minimised


@flax.struct.dataclass
class TrainState:
  """State of a training.

  Attributes:
    step: int32, number of steps taken.
    params: Parameters, a dict by model.
    skipped_steps: int32, number of steps skipped because their gradients were not finite.
  """

  step: Array
  params: dict
  opt_state: optax.OptState
  skipped_steps: Array


def new_state(
  init_params: Callable[[jax.Array], dict],
  optimizer: optax.GradientTransformation,
  *,
  seed: int | jax.Array,
) -> TrainState:
  """Returns the state of step 0; a pure function for `jax.eval_shape` and `jax.jit`."""
  params = init_params(jax.random.key(seed))
  return TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.init(params),
    skipped_steps=jnp.zeros([], jnp.int32),
  )


Metrics = dict[str, jax.Array]


def make_train_step(
  objective: Minimised,
  optimizer: optax.GradientTransformation,
  *,
  seed: int | jax.Array,
  accumulate_steps: int = 1,
) -> Callable[[TrainState, Any], tuple[TrainState, Metrics]]:
  """Returns the pure function `(state, batch) -> (state, metrics)`.

  A step's dropout depends only on the seed and the step. The parts of a batch, `accumulate_steps`
  of them, are computed one after another.

  Raises:
    ValueError: On tracing, if the batch cannot be split into `accumulate_steps` equal parts.
  """

  def train_step(state: TrainState, batch) -> tuple[TrainState, Metrics]:
    gradients, figures = objective.gradients(
      state.params, batch, dropout_key(seed, state.step), parts=accumulate_steps
    )
    metrics = {name: mean.value for name, mean in figures.items()}
    norm = optax.global_norm(gradients)
    finite = jnp.isfinite(norm) & jnp.isfinite(metrics[LOSS])
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)

    def keep_if_finite(new, old):
      return new if _is_schedule(new) else jnp.where(finite, new, old)

    state = TrainState(
      step=state.step + 1,
      params=jax.tree.map(keep_if_finite, params, state.params),
      opt_state=jax.tree.map(keep_if_finite, opt_state, state.opt_state, is_leaf=_is_schedule),
      skipped_steps=state.skipped_steps + jnp.where(finite, 0, 1),
    )
    return state, {**metrics, "gradient_norm": norm, "skipped_steps": state.skipped_steps}

  return train_step


def _is_schedule(node) -> bool:
  return isinstance(node, optax.ScaleByScheduleState)
