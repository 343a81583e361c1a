"""The state of a training."""

from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import optax

from realm_jax.datatypes import Array
from realm_jax.training.guard import GuardState


@flax.struct.dataclass
class TrainState:
  """State of a training.

  Attributes:
    step: int32, number of steps taken.
    params: Parameters, a dict by model.
    skipped_steps: int32, number of steps skipped because their gradients were not finite.
    guard: State of the dual encoder's guard; None without a guard.
  """

  step: Array
  params: dict
  opt_state: optax.OptState
  skipped_steps: Array
  guard: GuardState | None = None

  @property
  def teaching(self) -> jax.Array | None:
    """Whether batches may pair queries with their source passages; None without a guard."""
    return None if self.guard is None else self.guard.teaching


def create(
  init_params: Callable[[jax.Array], dict],
  optimizer: optax.GradientTransformation,
  *,
  seed: int | jax.Array,
  guard: GuardState | None = None,
) -> TrainState:
  """Returns the state of step 0; a pure function for `jax.eval_shape` and `jax.jit`."""
  params = init_params(jax.random.key(seed))
  return TrainState(
    step=jnp.zeros([], jnp.int32),
    params=params,
    opt_state=optimizer.init(params),
    skipped_steps=jnp.zeros([], jnp.int32),
    guard=guard,
  )
