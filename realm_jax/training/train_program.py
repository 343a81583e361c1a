"""The compiled part of training: the layout of the state on a mesh, and the step.

Nothing is computed until requested, so that `realm plan` can compile the very same step for a mesh
of absent devices.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import flax.linen as nn
import jax
import numpy as np
import optax
from jax.sharding import Mesh

from realm_jax import partitioning
from realm_jax.training import train_state
from realm_jax.training.guard import Guard
from realm_jax.training.objective import Objective
from realm_jax.training.train_step import make_train_step


class TrainProgram:
  """The initial state and the step of a training on a mesh.

  Attributes:
    abstract_state: Shapes and shardings of the train state.
    batch_sharding: Sharding of every array of a batch.
    seed: int32 of parameters and dropout; no compiled program contains it.
    jitted_step: Jitted `(state, batch, seed) -> (state, metrics)`; the state is donated. Runs that
      differ only in their seed share the compiled step.
    measure: Jitted `(params, batch) -> utility` for the guard, every few steps; None without one.
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
    guard: Guard | None = None,
  ):
    def create(seed):
      start = None if guard is None else guard.start()
      return train_state.create(init_params, optimizer, seed=seed, guard=start)

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

    def outputs_of_gathered(params, rows, key):
      # Otherwise XLA may shard activations where parameters are sharded.
      return objective.outputs(jax.lax.with_sharding_constraint(params, gathered), rows, key)

    of_gathered = dataclasses.replace(objective, outputs=outputs_of_gathered)
    self._guard = guard

    def train_step(state, batch, seed):
      step = make_train_step(
        of_gathered, optimizer, seed=seed, accumulate_steps=accumulate_steps, guard=guard
      )
      return step(state, batch)

    self.jitted_step = jax.jit(
      partitioning.on_mesh(mesh, train_step),
      donate_argnums=0,
      out_shardings=(self._shardings, None),
    )
    self.measure = None
    if guard is not None:
      measure = functools.partial(guard.utility_of_others, of_gathered, parts=accumulate_steps)
      self.measure = jax.jit(
        partitioning.on_mesh(mesh, measure),
        out_shardings=partitioning.sharding(mesh),
      )

  def train_step(self, state: train_state.TrainState, batch):
    """Takes one step; the state is donated."""
    return self.jitted_step(state, batch, self.seed)

  def steps_from(self, first: int) -> Callable:
    """Returns the step for a loop that starts at step `first`; it also measures for the guard."""
    measure = self.measure
    if self._guard is None or measure is None or not self._guard.config.enabled:
      return self.train_step
    every, steps = self._guard.config.measure_every, itertools.count(first)

    def step(state: train_state.TrainState, batch):
      if next(steps) % every == 0 and state.guard is not None:
        # A separate program, because a branch within the step would have collectives that devices
        # may reach in different orders.
        of_others = measure(state.params, batch)
        remembered = dataclasses.replace(state.guard, of_others=of_others)
        state = dataclasses.replace(state, guard=remembered)
      return self.train_step(state, batch)

    return step

  def new_state(self) -> train_state.TrainState:
    """Makes the state of step 0 on the mesh."""
    return self._new_state(self.seed)
