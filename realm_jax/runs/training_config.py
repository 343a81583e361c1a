"""The settings that every training has: its run, its mesh, its optimizer."""

import dataclasses
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from realm_jax import partitioning
from realm_jax.training.guard import Guard
from realm_jax.training.objective import Objective
from realm_jax.training.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.train_program import TrainProgram


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
  """How long a training runs, and what it writes on the way.

  Attributes:
    num_steps: Steps of the whole run, which the schedule of the learning rate spans.
    seed: Seeds parameters, data order, masks and dropout.
    log_every: Steps between two writes of metrics.
    checkpoint_every: Steps between two checkpoints, which an index builder follows.
    keep_checkpoints: Checkpoints to keep.
    allow_changes: What may differ from the run that is continued, such as "seed,batch_size"; its
      data then begin anew. Otherwise other batches are refused.
  """

  num_steps: int = 100_000
  seed: int = 0
  log_every: int = 100
  checkpoint_every: int = 1000
  keep_checkpoints: int = 5
  allow_changes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
  """How a training lies on the devices.

  Attributes:
    layout: "replicated", or "fully_sharded": parameters and optimizer split over all devices, for
      large models.
    model_parallel: Devices that share one copy of the model; the others split the batch.
    accumulate_steps: Parts of a batch that are computed one after the other.
  """

  layout: partitioning.Layout = "replicated"
  model_parallel: int = 1
  accumulate_steps: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
  """What all trainings are configured with.

  Attributes:
    run: How long it runs, and what it writes.
    mesh: How it lies on the devices.
    optimizer: What updates the parameters.
  """

  run: RunConfig = RunConfig()
  mesh: MeshConfig = MeshConfig()
  optimizer: OptimizerConfig = OptimizerConfig()

  def make_program(
    self,
    objective: Objective,
    *,
    init_params: Callable[[jax.Array], dict],
    mesh: Mesh | None = None,
    guard: Guard | None = None,
  ) -> TrainProgram:
    """Returns the train step and the layout of its state.

    Args:
      objective: What is minimised.
      init_params: Makes the boxed parameters from a key.
      mesh: Of the devices that train; None takes all there are.
      guard: Of the dual encoder; None for none.
    """
    if mesh is None:
      mesh = partitioning.make_mesh(model=self.mesh.model_parallel)
    return TrainProgram(
      mesh=mesh,
      init_params=init_params,
      objective=objective,
      optimizer=make_optimizer(self.optimizer, num_steps=self.run.num_steps),
      seed=self.run.seed,
      accumulate_steps=self.mesh.accumulate_steps,
      layout=self.mesh.layout,
      guard=guard,
    )
