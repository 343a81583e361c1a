"""What a training step carries on."""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import optax

from realm_jax.datatypes import Array


@flax.struct.dataclass
class TrainState:
  """State of a training.

  Attributes:
    step: int32, steps taken.
    params: parameters, a dict by model.
    opt_state: of the optimizer.
    skipped_steps: int32, steps whose gradients were not finite and changed nothing.
  """

  step: Array
  params: dict
  opt_state: optax.OptState
  skipped_steps: Array


def create(
  init_params: Callable[[jax.Array], dict], optimizer: optax.GradientTransformation, *, seed: int
) -> TrainState:
  """Makes the state of step 0; pure, so that `jax.eval_shape` and `jax.jit` take it."""
  params = init_params(jax.random.key(seed))
  return TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.init(params),
    skipped_steps=jnp.zeros([], jnp.int32),
  )
