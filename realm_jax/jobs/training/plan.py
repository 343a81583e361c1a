"""Compiles pre-training for absent devices, and tells whether it fits and how fast it is."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh

from realm_jax import partitioning
from realm_jax.index import device_searcher
from realm_jax.indexing.builder_config import BuilderConfig
from realm_jax.models.dual_encoder import Tower, passage_tower_params
from realm_jax.models.encoder_programs import passage_encoder_program, query_encoder_program
from realm_jax.planning import chips, generation_costs, model_costs, report
from realm_jax.planning.ahead_of_time import CompiledProgram, compile_program, open_topology
from realm_jax.planning.roofline import roofline
from realm_jax.runs.pretraining import Pretraining, abstract_tokens, encoder_pass

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
  planned = _Planned.open(
    pretraining,
    builder,
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
    _print(report.memory_lines(estimate, compiled_step=None, compiled_state=0, chip=chip))
    return _conclude([report.over_capacity("the train step", estimate.total, chip)])
  programs = planned.compile()
  step = programs[0]
  _print(
    report.memory_lines(
      estimate,
      compiled_step=None if step.refusal else step.memory_bytes,
      compiled_state=estimate.state,
      chip=chip,
    )
  )
  reasons = _refusals(planned, programs)
  if not reasons:
    _print_performance(planned, programs, efficiency=efficiency)
  return _conclude(reasons)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Planned:
  """A training and an index builder on their planned devices.

  Attributes:
    pretraining: The training.
    builder: The index builder.
    mesh: The trainer's mesh.
    chip: The trainer's chip.
    builder_mesh: The index builder's mesh.
    builder_chip: The index builder's chip.
    index: The costs of a generation.
    passage_length: Padded wordpieces of a passage in the builder's batches.
  """

  pretraining: Pretraining
  builder: BuilderConfig
  mesh: Mesh
  chip: chips.Chip
  builder_mesh: Mesh
  builder_chip: chips.Chip
  index: generation_costs.Index
  passage_length: int

  @classmethod
  def open(
    cls,
    pretraining: Pretraining,
    builder: BuilderConfig,
    *,
    trainer: chips.Topology,
    builder_topology: chips.Topology,
    num_passages: int,
    passage_length: int,
  ) -> "_Planned":
    """Puts both on their devices."""
    devices, chip = open_topology(trainer)
    mesh = partitioning.make_mesh(model=pretraining.mesh.model_parallel, devices=devices)
    _check_divides(pretraining, mesh)
    builder_devices, builder_chip = open_topology(builder_topology)
    config = builder.searcher.for_corpus(num_passages)
    return cls(
      pretraining=pretraining,
      builder=builder,
      mesh=mesh,
      chip=chip,
      builder_mesh=partitioning.make_mesh(devices=builder_devices),
      builder_chip=builder_chip,
      index=generation_costs.Index(
        passages=num_passages,
        width=pretraining.model.dual_encoder.projection_size,
        bytes_per_value=_dtype(builder).itemsize,
        shards=0 if config.kind == "device" else config.num_shards,
        leaves=config.num_leaves,
        training_rows=config.training_sample_size,
        dimensions_per_code=config.dimensions_per_block,
      ),
      passage_length=passage_length,
    )

  @functools.cached_property
  def passes(self) -> list[model_costs.Pass]:
    """The encoder passes of one device in a step."""
    return self.pretraining.passes(num_devices=self.mesh.size)

  @functools.cached_property
  def estimate(self) -> model_costs.MemoryEstimate:
    """Memory of one device in a step."""
    return _estimate(self.pretraining, self.mesh, self.passes, self.index)

  @property
  def batch(self) -> int:
    """Passages of a batch as `passage_embedding.passage_batches` makes them."""
    devices = self.builder_mesh.size
    whole = self.builder.tokens_per_batch // self.passage_length // devices * devices
    return max(devices, whole)

  def compile(self) -> list[CompiledProgram]:
    """Compiles train step, query encoder, search on the devices, and passage encoder."""
    return [
      *_trainer_programs(self.pretraining, self.mesh, self.index, dtype=_dtype(self.builder)),
      _passage_program(
        self.pretraining, self.builder_mesh, batch=self.batch, length=self.passage_length
      ),
    ]


def _dtype(builder: BuilderConfig) -> np.dtype:
  return np.dtype(ml_dtypes.bfloat16 if builder.dtype == "bfloat16" else np.float32)


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
  of_step, of_batch = (
    roofline(step.work, planned.chip),
    roofline(passage.work, planned.builder_chip),
  )
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
      checkpoint_bytes=_checkpoint_bytes(pretraining, planned.mesh),
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


def _estimate(
  pretraining: Pretraining, mesh, passes: list[model_costs.Pass], index: generation_costs.Index
) -> model_costs.MemoryEstimate:
  state = pretraining.program(mesh).abstract_state
  batch = pretraining.abstract_batch()
  parameters = _bytes_on_a_device(state.params)
  gathered = _bytes_on_a_device(
    pretraining.with_layout("replicated").program(mesh).abstract_state.params
  )
  kept = model_costs.activation_bytes(passes) / pretraining.mesh.accumulate_steps
  shard = device_searcher.rows_per_device(index.passages, mesh.size)
  shard *= index.width * index.bytes_per_value
  return model_costs.MemoryEstimate(
    parameters=parameters,
    optimizer=_bytes_on_a_device(state.opt_state),
    # Gradients are as large as their parameters.
    activations=round(kept)
    + gathered
    + (gathered if pretraining.mesh.layout != "replicated" else 0),
    batch=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(batch))
    // mesh.shape["data"],
    search_shard=0 if index.shards else shard,
  )


def _bytes_on_a_device(tree) -> int:
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _checkpoint_bytes(pretraining: Pretraining, mesh) -> int:
  state = pretraining.program(mesh).abstract_state
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _trainer_programs(
  pretraining: Pretraining, mesh, index: generation_costs.Index, *, dtype: np.dtype
) -> list[CompiledProgram]:
  """Compiles the train step, the query encoder and a search of the whole corpus on the devices."""
  program = pretraining.program(mesh)
  state = program.abstract_state
  batch = _placed(pretraining.abstract_batch(), program.batch_sharding)
  encode = query_encoder_program(
    pretraining.module.dual_encoder_config, sharding=program.batch_sharding
  )
  search = device_searcher.search_program(
    mesh,
    num_passages=index.passages,
    k=min(pretraining.retrieval.num_passages, index.passages),
    recall_target=None,
  )
  return [
    compile_program("train step", program.train_step, state, batch, num_devices=mesh.size),
    compile_program(
      "query encoder",
      encode,
      state.params["dual_encoder"],
      batch.queries.query,
      num_devices=mesh.size,
    ),
    compile_program(
      "search on the devices",
      search,
      *device_searcher.abstract_search(
        mesh,
        num_passages=index.passages,
        embedding_size=index.width,
        dtype=dtype,
        batch_size=pretraining.data.batch_size,
      ),
      num_devices=mesh.size,
    ),
  ]


def _passage_program(pretraining: Pretraining, mesh, *, batch: int, length: int) -> CompiledProgram:
  """Compiles the index builder's passage encoder."""
  params = pretraining.with_layout("replicated").program(mesh).abstract_state.params
  return compile_program(
    "passage encoder",
    passage_encoder_program(Tower(pretraining.model.dual_encoder)),
    passage_tower_params(params),
    _placed(abstract_tokens(batch, length), partitioning.batch_sharding(mesh)),
    num_devices=mesh.size,
  )


def _placed(tree, sharding):
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
  )
