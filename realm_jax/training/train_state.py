"""The state of a training."""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import optax

from realm_jax.devices.datatypes import Array


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


def create(
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
