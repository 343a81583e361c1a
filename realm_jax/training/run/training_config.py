"""The configuration common to all training: run, mesh and optimizer."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import flax.traverse_util
import jax
from jax.sharding import Mesh

from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Lengths
from realm_jax.foundations import choices
from realm_jax.objectives.objective import Minimised, Objective
from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.run.resumption import NUM_STEPS
from realm_jax.training.run.train_program import TrainProgram


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(choices.Checked):
  """How long a training runs, and what it writes.

  Attributes:
    num_steps: Total steps of the run, which the learning-rate schedule spans.
    seed: Seeds parameters, data order, masks and dropout.
    log_every: Steps between writes of metrics.
    checkpoint_every: Steps between checkpoints, which an index builder follows.
    keep_checkpoints: Number of checkpoints to keep.
    allow_changes: Batch settings that may differ when a run is resumed, such as "seed,batch_size";
      its data then restart. Other differences are rejected.
    on_collapse: "stop" ends the run with exit code 1 when retrieval has collapsed: most queries get
      the same passage, or one passage all the probability. "warn" only raises the alarm. A run that
      diverges always ends.
    resume_from: Step of the checkpoint to go back to; newer ones are deleted. None resumes from the
      newest.
    profile_steps: First step to trace and the one after the last, such as "100,105". The first
      process writes the trace to `WORKDIR/plugins/profile` for TensorBoard and XProf.
  """

  num_steps: choices.CountOrZero = 100_000
  seed: choices.Seed = 0
  log_every: choices.Count = 100
  checkpoint_every: choices.Count = 1000
  keep_checkpoints: choices.Count = 5
  allow_changes: tuple[str, ...] = ()
  on_collapse: Literal["stop", "warn"] = "stop"
  resume_from: choices.CountOrZero | None = None
  profile_steps: tuple[choices.CountOrZero, ...] = ()

  def __post_init__(self):
    super().__post_init__()
    steps = self.profile_steps
    if steps and not (len(steps) == 2 and steps[0] < steps[1]):
      raise ValueError(
        f"profile_steps={steps}; give the first step and the one after the last, such as 100,105"
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(choices.Checked):
  """How a training is distributed over devices.

  Attributes:
    layout: "replicated", or "fully_sharded", which shards parameters and optimizer over all devices
      for large models.
    model_parallel: Devices that share one copy of the model; copies split the batch.
    accumulate_steps: Parts of a batch, computed one after another to save memory.
  """

  layout: partitioning.Layout = "replicated"
  model_parallel: choices.Count = 1
  accumulate_steps: choices.Count = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(choices.Checked):
  """The configuration common to all training.

  Attributes:
    run: How long it runs, and what it writes.
    mesh: How it is distributed over devices.
    optimizer: The optimizer.
    objective: What is minimised.
  """

  run: RunConfig = RunConfig()
  mesh: MeshConfig = MeshConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  objective: Objective

  @property
  def learning_settings(self) -> dict[str, Any]:
    """The settings that learning depends on by name, which a resumed run may change."""
    optimizer = {"optimizer": dataclasses.asdict(self.optimizer)}
    spanned = {NUM_STEPS: self.run.num_steps} if self.optimizer.spans_the_run else {}
    return {
      **flax.traverse_util.flatten_dict(optimizer, sep="."),
      **spanned,
      "objective": repr(self.objective),
    }

  @property
  def stops_on_collapse(self) -> bool:
    """Whether a collapse of retrieval ends the run."""
    return self.run.on_collapse == "stop"

  def make_program(
    self,
    objective: Minimised,
    *,
    init_params: Callable[[jax.Array], dict],
    batch_size: int,
    mesh: Mesh | None = None,
    lengths: Lengths = (),
  ) -> TrainProgram:
    """Returns the train step and the layout of the train state, on a mesh or on all devices.

    Args:
      lengths: Those of the corpus's passages, without which every sequence has full length.

    Raises:
      ValueError: If all devices cannot share the batch equally.
    """
    if mesh is None:
      mesh = partitioning.make_mesh(model=self.mesh.model_parallel)
      partitioning.check_divides(mesh, self.mesh.accumulate_steps, batch_size=batch_size)
    return TrainProgram(
      mesh=mesh,
      init_params=init_params,
      objective=objective.of_lengths(lengths),
      optimizer=make_optimizer(self.optimizer, num_steps=self.run.num_steps),
      seed=self.run.seed,
      accumulate_steps=self.mesh.accumulate_steps,
      layout=self.mesh.layout,
    )


def changed(config: Any, change: Callable[[str, Any], Any]) -> Any:
  """Returns a dataclass with every field, also of dataclasses in it, as `change(name, value)`."""
  values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  return dataclasses.replace(
    config,
    **{
      name: changed(value, change) if dataclasses.is_dataclass(value) else change(name, value)
      for name, value in values.items()
    },
  )
