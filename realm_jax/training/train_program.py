"""The compiled half of a training: the layout of its state on a mesh, and its step.

Nothing is computed before it is asked for, so that `realm plan` can compile the very same step for
a mesh of devices that are not there.
"""

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import optax
from jax.sharding import Mesh

from realm_jax import partitioning
from realm_jax.training import train_state
from realm_jax.training.objective import Objective
from realm_jax.training.train_step import make_train_step


class TrainProgram:
  """How a training begins and steps, on a mesh.

  Args:
    mesh: Mesh of the devices, see `partitioning.make_mesh`.
    init_params: Makes the boxed parameters from a key.
    objective: The objective.
    optimizer: See `optimizer.make_optimizer`.
    seed: Seeds parameters and dropout.
    accumulate_steps: See `make_train_step`.
    layout: Layout of parameters and optimizer, see `partitioning.Layout`.

  Attributes:
    abstract_state: Shapes and shardings of the train state.
    batch_sharding: Sharding of every array of a batch.
    train_step: Jitted `(state, batch) -> (state, metrics)`; the state is donated.
  """

  def __init__(
    self,
    *,
    mesh: Mesh,
    init_params: Callable[[jax.Array], dict],
    objective: Objective,
    optimizer: optax.GradientTransformation,
    seed: int,
    accumulate_steps: int,
    layout: partitioning.Layout,
  ):
    def create():
      return train_state.create(init_params, optimizer, seed=seed)

    self.mesh = mesh
    self.batch_sharding = partitioning.batch_sharding(mesh)
    self._create = create
    boxed = jax.eval_shape(create)
    self._shardings = partitioning.tree_shardings(mesh, boxed, layout=layout)
    self.abstract_state = jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
      nn.unbox(boxed),
      self._shardings,
    )
    gathered = partitioning.tree_shardings(mesh, boxed.params, layout="replicated")

    def outputs_of_gathered(params, rows, key):
      # Without this XLA may as well split activations where parameters are split.
      return objective.outputs(jax.lax.with_sharding_constraint(params, gathered), rows, key)

    self.train_step = jax.jit(
      make_train_step(
        dataclasses.replace(objective, outputs=outputs_of_gathered),
        optimizer,
        seed=seed,
        accumulate_steps=accumulate_steps,
      ),
      donate_argnums=0,
      out_shardings=(self._shardings, None),
    )

  def new_state(self) -> train_state.TrainState:
    """Makes the state of step 0 on the mesh."""
    return jax.jit(lambda: nn.unbox(self._create()), out_shardings=self._shardings)()
