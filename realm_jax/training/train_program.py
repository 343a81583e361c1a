"""The compiled part of training: the layout of the state on a mesh, and the step.

Nothing is computed until requested, so that `realm plan` can compile the very same step for a mesh
of absent devices.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import numpy as np
import optax
from jax.sharding import Mesh

from realm_jax.devices import partitioning
from realm_jax.objectives.objective import Minimised
from realm_jax.training.train_step import TrainState, make_train_step, new_state


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
    )

  def train_step(self, state: TrainState, batch):
    """Takes one step; the state is donated."""
    return self.jitted_step(state, batch, self.seed)

  def new_state(self) -> TrainState:
    """Makes the state of step 0 on the mesh."""
    return self._new_state(self.seed)
