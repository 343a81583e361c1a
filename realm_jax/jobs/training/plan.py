"""Compiles pre-training for absent devices, and tells whether it fits and how fast it is."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from realm_jax import partitioning
from realm_jax.index import device_searcher
from realm_jax.indexing.builder_config import BuilderConfig
from realm_jax.models.dual_encoder import passage_tower_params
from realm_jax.models.encoder_programs import passage_encoder_program, query_encoder_program
from realm_jax.planning import chips, generation_costs, model_costs, report
from realm_jax.planning.ahead_of_time import CompiledProgram, compile_program, open_topology
from realm_jax.planning.roofline import roofline
from realm_jax.runs.pretraining import Pretraining, abstract_tokens, encoder_pass
from realm_jax.training.train_program import TrainProgram

# The estimate's error is smaller; beyond this, the plan is rejected without compiling.
_HOPELESS = 1.5


def plan(
  *,
  topology: str,
  num_passages: int,
  pretraining: Pretraining = Pretraining(),
  builder: BuilderConfig = BuilderConfig(),
  builder_topology: str | None = None,
  mean_passage_length: int | None = None,
  efficiency: float = 0.5,
) -> int:
  """Prints memory, arithmetic, traffic, times, staleness and storage of pre-training.

  Nothing runs on an accelerator: the programs of `realm pretrain` and `realm build_index` are
  compiled for the named devices on any machine. TPUs need libtpu (the extra `tpu`).

  Args:
    topology: The trainer's devices: v3:8x8, v4:4x4x4, v5e:8x8, v6e:8x8, cpu:8.
    num_passages: Number of passages in the knowledge corpus.
    pretraining: The configuration of the training.
    builder: The index builder.
    builder_topology: The index builder's devices; None uses the trainer's.
    mean_passage_length: Mean padded wordpieces of a passage in the builder's batches; None uses
      the maximum.
    efficiency: Share of the roofline that real runs reach, for all times.

  Returns:
    0 if it fits, 2 if it does not.

  Raises:
    ValueError: If a topology is unknown or does not divide the batch.
  """
  if not 0 < efficiency <= 1:
    raise ValueError(f"efficiency={efficiency}; it must lie in (0, 1]")
  trainer = chips.parse_topology(topology)
  if trainer.kind != "cpu":
    pretraining = pretraining.on_accelerators()
  planned = _Planned(
    pretraining=pretraining,
    builder=builder,
    trainer=trainer,
    builder_topology=chips.parse_topology(builder_topology or topology),
    num_passages=num_passages,
    passage_length=mean_passage_length or pretraining.retrieval.passage_length,
  )
  _print(
    [
      f"{pretraining.data.batch_size} queries x {pretraining.retrieval.num_passages} passages"
      f" per step on {trainer.name}: {trainer.num_devices} devices, {trainer.num_hosts} hosts; "
      f"index of {num_passages:,} passages by {builder_topology or topology}"
    ]
  )
  estimate, chip = planned.estimate, planned.chip
  if estimate.total > _HOPELESS * chip.usable_bytes:
    _print(report.memory_lines(estimate, compiled_step=None, chip=chip))
    return _conclude([report.over_capacity("the train step", estimate.total, chip)])
  programs = planned.compile()
  compiled = None if programs[0].refusal else programs[0].memory_bytes
  _print(report.memory_lines(estimate, compiled_step=compiled, chip=chip))
  reasons = _refusals(planned, programs)
  if not reasons:
    _print_performance(planned, programs, efficiency=efficiency)
  return _conclude(reasons)


@dataclasses.dataclass(kw_only=True)
class _Planned:
  """A training and an index builder on their planned devices.

  Attributes:
    pretraining: The training.
    builder: The index builder.
    trainer: Topology of the trainer.
    builder_topology: Topology of the index builder.
    num_passages: Number of passages in the corpus.
    passage_length: Padded wordpieces of a passage in the builder's batches.
  """

  pretraining: Pretraining
  builder: BuilderConfig
  trainer: chips.Topology
  builder_topology: chips.Topology
  num_passages: int
  passage_length: int

  def __post_init__(self):
    devices, self.chip = open_topology(self.trainer)
    model_parallel = self.pretraining.mesh.model_parallel
    self.mesh = partitioning.make_mesh(model=model_parallel, devices=devices)
    _check_divides(self.pretraining, self.mesh)
    devices, self.builder_chip = open_topology(self.builder_topology)
    self.builder_mesh = partitioning.make_mesh(devices=devices)
    self.dtype = np.dtype(self.builder.dtype)
    config = self.builder.searcher.for_corpus(self.num_passages)
    self.index = generation_costs.Index(
      passages=self.num_passages,
      width=self.pretraining.model.dual_encoder.projection_size,
      bytes_per_value=self.dtype.itemsize,
      shards=0 if config.kind == "device" else config.num_shards,
      leaves=config.num_leaves,
      training_rows=config.training_sample_size,
      dimensions_per_code=config.dimensions_per_block,
    )

  @functools.cached_property
  def passes(self) -> list[model_costs.Pass]:
    """The encoder passes of one device in a step."""
    return self.pretraining.passes(num_devices=self.mesh.size)

  @functools.cached_property
  def program(self) -> TrainProgram:
    """The train step and the layout of its state."""
    return self.pretraining.program(self.mesh)

  @functools.cached_property
  def estimate(self) -> model_costs.MemoryEstimate:
    """Memory of one device in a step."""
    pretraining, index = self.pretraining, self.index
    state, batch = self.program.abstract_state, pretraining.abstract_batch()
    gathered = _bytes_on_a_device(self._gathered_params(self.mesh))
    kept = model_costs.activation_bytes(self.passes) / pretraining.mesh.accumulate_steps
    shard = device_searcher.rows_per_device(index.passages, self.mesh.size)
    return model_costs.MemoryEstimate(
      parameters=_bytes_on_a_device(state.params),
      optimizer=_bytes_on_a_device(state.opt_state),
      # Gradients are as large as their parameters.
      activations=round(kept) + gathered * (1 if pretraining.mesh.layout == "replicated" else 2),
      batch=_bytes(batch) // self.mesh.shape["data"],
      search_shard=0 if index.shards else shard * index.width * index.bytes_per_value,
    )

  @property
  def batch(self) -> int:
    """Passages of a batch as `passage_embedding.passage_batches` makes them."""
    devices = self.builder_mesh.size
    whole = self.builder.tokens_per_batch // self.passage_length // devices * devices
    return max(devices, whole)

  def compile(self) -> list[CompiledProgram]:
    """Compiles train step, query encoder, search on the devices, and passage encoder."""
    pretraining, program, mesh = self.pretraining, self.program, self.mesh
    dual_encoder, state = pretraining.model.dual_encoder, program.abstract_state
    batch = _placed(pretraining.abstract_batch(), program.batch_sharding)
    compiled = functools.partial(compile_program, num_devices=mesh.size)
    return [
      compiled("train step", program.train_step, state, batch),
      compiled(
        "query encoder",
        query_encoder_program(dual_encoder, sharding=program.batch_sharding),
        state.params["dual_encoder"],
        batch.queries.query,
      ),
      compiled(
        "search on the devices",
        device_searcher.search_program(
          mesh,
          num_passages=self.num_passages,
          k=min(pretraining.retrieval.num_passages, self.num_passages),
          recall_target=None,
        ),
        *device_searcher.abstract_search(
          mesh,
          num_passages=self.num_passages,
          embedding_size=self.index.width,
          dtype=self.dtype,
          batch_size=pretraining.data.batch_size,
        ),
      ),
      compile_program(
        "passage encoder",
        passage_encoder_program(dual_encoder),
        passage_tower_params(self._gathered_params(self.builder_mesh)),
        _placed(
          abstract_tokens(self.batch, self.passage_length),
          partitioning.batch_sharding(self.builder_mesh),
        ),
        num_devices=self.builder_mesh.size,
      ),
    ]

  def _gathered_params(self, mesh: Mesh) -> dict:
    """Returns the shapes of the parameters, each whole on every device."""
    return self.pretraining.with_layout("replicated").program(mesh).abstract_state.params


def _refusals(planned: _Planned, programs: Sequence[CompiledProgram]) -> list[str]:
  """Returns the reasons why the training does not fit, if any."""
  step, query, search, passage = programs
  estimate, chip = planned.estimate, planned.chip
  resident = [
    (step, step.memory_bytes + estimate.search_shard, chip),
    (query, query.memory_bytes + estimate.optimizer + estimate.search_shard, chip),
    (passage, passage.memory_bytes, planned.builder_chip),
  ]
  if not planned.index.shards:
    resident.append((search, search.memory_bytes + estimate.state, chip))
  reasons = [f"{program.name}: {program.refusal}" for program, *_ in resident if program.refusal]
  for program, needed, where in resident:
    if needed > where.usable_bytes:
      reasons.append(report.over_capacity(f"the {program.name}", needed, where))
  host_bytes = generation_costs.host_bytes(planned.index)
  if host_bytes > chip.host_memory_bytes:
    reasons.append(
      f"two generations and the program take {host_bytes / chips.GIB:.0f} GiB of a host's "
      f"{chip.host_memory_bytes / chips.GIB:.0f} GiB; use --builder.dtype=bfloat16"
    )
  return reasons


def _print_performance(
  planned: _Planned, programs: Sequence[CompiledProgram], *, efficiency: float
) -> None:
  """Prints arithmetic, traffic, times, staleness and storage."""
  step, query, search, passage = programs
  pretraining, index, passes = planned.pretraining, planned.index, planned.passes
  embedding = encoder_pass(
    pretraining.model.dual_encoder.bert,
    sequences=planned.batch / planned.builder_mesh.size,
    length=planned.passage_length,
  )
  _print(
    report.program_lines(
      [
        (step.name, step.work, model_costs.training_flops(passes)),
        (query.name, query.work, model_costs.forward_flops(passes[0])),
        (search.name, search.work, None),
        (passage.name, passage.work, model_costs.forward_flops(embedding)),
      ]
    )
  )
  _print(report.collective_lines(step.collectives))
  of_step = roofline(step.work, planned.chip)
  of_batch = roofline(passage.work, planned.builder_chip)
  useful = model_costs.model_flops(passes)
  _print(report.step_lines(of_step, efficiency=efficiency, useful_flops=useful, chip=planned.chip))
  batches = math.ceil(index.passages / planned.batch)
  times = {
    "embed_seconds": batches * of_batch.seconds / efficiency,
    "build_seconds": generation_costs.build_seconds(index, cores=planned.builder_chip.host_cores),
    "load_seconds": generation_costs.load_seconds(index),
  }
  stale = generation_costs.staleness(
    **times,
    step_seconds=of_step.seconds / efficiency,
    checkpoint_every=pretraining.run.checkpoint_every,
  )
  _print(report.refresh_lines(**times, stale=stale))
  _print(
    report.storage_lines(
      index,
      host_bytes=generation_costs.host_bytes(index),
      chip=planned.chip,
      checkpoint_bytes=_bytes(planned.program.abstract_state),
      keep_generations=planned.builder.keep,
      keep_checkpoints=pretraining.run.keep_checkpoints,
    )
  )


def _print(lines: list[str]) -> None:
  print("\n".join(lines), flush=True)


def _conclude(reasons: list[str]) -> int:
  _print([report.verdict(reasons)])
  return 2 if reasons else 0


def _check_divides(pretraining: Pretraining, mesh) -> None:
  batch_size, accumulate_steps = pretraining.data.batch_size, pretraining.mesh.accumulate_steps
  parts = mesh.shape["data"] * accumulate_steps
  if batch_size % parts:
    raise ValueError(
      f"batch_size={batch_size} cannot be split over {mesh.shape['data']} parts of the mesh and "
      f"{accumulate_steps} accumulate_steps; make it a multiple of {parts}"
    )


def _bytes_on_a_device(tree) -> int:
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _bytes(tree) -> int:
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _placed(tree, sharding):
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
  )
