"""The compiled part of training: the state, its layout on a mesh, and the step that updates it.

Non-finite steps are counted and change nothing. Schedules advance over them too: like data order
and dropout, they are functions of the number of steps, so a run of `num_steps` always ends with the
configured rate.

Nothing is computed until requested, so that `realm plan` can compile the very same step for a mesh
of absent devices.
"""

import os
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Array
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
# XLA would make one product of those of all lengths, write it in float32, and copy its factors.
_GPU_OPTIONS = {"xla_gpu_dot_merger_threshold_mb": "0"}


def compiler_options(platform: str) -> dict[str, str]:
  """Returns XLA's options for a step on a platform; those of XLA_FLAGS take precedence."""
  flags = os.environ.get("XLA_FLAGS", "")
  options = _GPU_OPTIONS if platform == "gpu" else {}
  return {name: value for name, value in options.items() if f"--{name}=" not in flags}


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
  """

  def train_step(state: TrainState, batch) -> tuple[TrainState, Metrics]:
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    gradients, sums = objective.gradients(state.params, batch, key, parts=accumulate_steps)
    metrics = {name: mean.value for name, mean in sums.items()}
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


class TrainProgram:
  """The initial state and the step of a training on a mesh.

  Attributes:
    abstract_state: Shapes and shardings of the train state.
    batch_sharding: Sharding of every array of a batch.
    seed: int32 of parameters and dropout; no compiled program contains it.
    jitted_step: Jitted `(state, batch, seed) -> (state, metrics)`; the state is donated. Runs that
      differ only in their seed share the compiled step.
  """

  def __init__(
    self,
    *,
    mesh: Mesh,
    init_params: Callable[[jax.Array], dict],
    objective: Minimised,
    optimizer: optax.GradientTransformation,
    seed: int,
    accumulate_steps: int,
    layout: partitioning.Layout,
  ):
    def create(seed):
      return new_state(init_params, optimizer, seed=seed)

    self.mesh = mesh
    self.batch_sharding = partitioning.batch_sharding(mesh)
    # Its low 32 bits, as `jax.random.key` takes them.
    self.seed = np.int64(seed).astype(np.int32)
    boxed = jax.eval_shape(create, self.seed)
    self._shardings = partitioning.tree_shardings(mesh, boxed, layout=layout)
    self.abstract_state = jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
      nn.unbox(boxed),
      self._shardings,
    )
    self._new_state = jax.jit(lambda seed: nn.unbox(create(seed)), out_shardings=self._shardings)
    gathered = partitioning.tree_shardings(mesh, boxed.params, layout="replicated")

    # Otherwise XLA may shard activations where parameters are sharded.
    of_gathered = objective.of_params(
      lambda params: jax.lax.with_sharding_constraint(params, gathered)
    )

    def train_step(state, batch, seed):
      step = make_train_step(of_gathered, optimizer, seed=seed, accumulate_steps=accumulate_steps)
      return step(state, batch)

    self.jitted_step = jax.jit(
      partitioning.on_mesh(mesh, train_step),
      donate_argnums=0,
      out_shardings=(self._shardings, None),
      compiler_options=compiler_options(mesh.devices.flat[0].platform),
    )

  def train_step(self, state: TrainState, batch):
    """Takes one step; the state is donated."""
    return self.jitted_step(state, batch, self.seed)

  def new_state(self) -> TrainState:
    """Makes the state of step 0 on the mesh."""
    return self._new_state(self.seed)
