"""Compiles a pre-training for devices that are not there; says whether it fits and how it runs."""

import math
from collections.abc import Callable
from typing import Literal

import jax
import ml_dtypes
import numpy as np

from realm_jax import partitioning
from realm_jax.index import device_searcher
from realm_jax.index.searcher import SearcherConfig
from realm_jax.models.dual_encoder import Tower, passage_tower_params
from realm_jax.models.encoder_programs import passage_encoder_program, query_encoder_program
from realm_jax.planning import chips, generation_costs, model_costs, report
from realm_jax.planning.ahead_of_time import CompiledProgram, compile_program, open_topology
from realm_jax.planning.model_costs import MemoryEstimate
from realm_jax.planning.roofline import roofline
from realm_jax.runs.pretraining import Pretraining, abstract_tokens, encoder_pass

# The estimate errs by less; beyond it nothing is compiled to say no.
_HOPELESS = 1.5


def plan(
  *,
  pretrain: Callable[..., None],
  topology: str,
  num_passages: int,
  builder_topology: str | None = None,
  mean_passage_length: int | None = None,
  searcher: SearcherConfig = SearcherConfig(),
  embedding_dtype: Literal["float32", "bfloat16"] = "float32",
  tokens_per_batch: int = 16_384,
  keep_generations: int = 3,
  efficiency: float = 0.5,
) -> int:
  """Prints memory, arithmetic, traffic, times, staleness and storage of a pre-training.

  Nothing runs on an accelerator: the programs of `realm pretrain` and `realm build_index` are
  compiled for the named devices on any machine, for TPUs with libtpu (the extra `tpu`), for `cpu`
  without it.

  Args:
    pretrain: the training, `@pretrain.pretrain` in gin.
    topology: of the trainer: v3:8x8, v4:4x4x4, v5e:8x8, v6e:8x8, cpu:8.
    num_passages: of the knowledge corpus.
    builder_topology: of the index builder; none: the trainer's.
    mean_passage_length: wordpieces that a passage takes on average in the builder's batches; none:
      as many as the longest.
    searcher: settings of the index.
    embedding_dtype: of the index.
    tokens_per_batch: as in `realm build_index`.
    keep_generations: as `keep` in `realm build_index`.
    efficiency: share of the roofline that real runs reach, for all times.

  Returns:
    0 if it fits, 2 if it does not.

  Raises:
    ValueError: if a topology is unknown or does not divide the batch.
  """
  if not 0 < efficiency <= 1:
    raise ValueError(f"efficiency={efficiency}; it must lie in (0, 1]")
  planned: list[Pretraining] = []
  pretrain(workdir="", corpus="", passages="", index="", instead=planned.append)
  [pretraining] = planned
  trainer = chips.parse_topology(topology)
  if trainer.kind != "cpu":
    pretraining = pretraining.on_accelerators()
  builder = chips.parse_topology(builder_topology or topology)
  devices, chip = open_topology(trainer)
  mesh = partitioning.make_mesh(model=pretraining.model_parallel, devices=devices)
  _check_divides(pretraining, mesh)
  dtype = np.dtype(ml_dtypes.bfloat16 if embedding_dtype == "bfloat16" else np.float32)
  index = _index(pretraining, searcher, num_passages=num_passages, dtype=dtype)
  passes = pretraining.passes(num_devices=mesh.size)
  estimate = _estimate(pretraining, mesh, passes, index)
  _print(
    [
      f"{pretraining.batch_size} queries x {pretraining.retrieval.num_passages} passages a step"
      f" on {trainer.name}: {trainer.num_devices} devices, {trainer.num_hosts} hosts; index of"
      f" {num_passages:,} passages by {builder.name}"
    ]
  )
  if estimate.total > _HOPELESS * chip.usable_bytes:
    _print(report.memory_lines(estimate, compiled_step=None, compiled_state=0, chip=chip))
    return _conclude([report.over_capacity("the train step", estimate.total, chip)])

  step, query, search = _trainer_programs(pretraining, mesh, index, dtype=dtype)
  builder_devices, builder_chip = open_topology(builder)
  builder_mesh = partitioning.make_mesh(devices=builder_devices)
  length = mean_passage_length or pretraining.retrieval.passage_length
  batch = _builder_batch(tokens_per_batch, length=length, num_devices=builder_mesh.size)
  passage = _passage_program(pretraining, builder_mesh, batch=batch, length=length)
  state_bytes = estimate.parameters + estimate.optimizer
  compiled_step = None if step.refusal else step.memory_bytes
  _print(
    report.memory_lines(
      estimate, compiled_step=compiled_step, compiled_state=state_bytes, chip=chip
    )
  )
  host_bytes = generation_costs.host_bytes(index)
  resident = [
    (step, step.memory_bytes + estimate.search_shard, chip),
    (query, query.memory_bytes + estimate.optimizer + estimate.search_shard, chip),
    (passage, passage.memory_bytes, builder_chip),
  ]
  if not index.shards:
    resident.append((search, search.memory_bytes + state_bytes, chip))
  reasons = [f"{program.name}: {program.refusal}" for program, *_ in resident if program.refusal]
  for program, needed, where in resident:
    if needed > where.usable_bytes:
      reasons.append(report.over_capacity(f"the {program.name}", needed, where))
  if host_bytes > chip.host_memory_bytes:
    reasons.append(
      f"two generations and the program take {host_bytes / chips.GIB:.0f} GiB of a host's "
      f"{chip.host_memory_bytes / chips.GIB:.0f} GiB; take embedding_dtype bfloat16"
    )
  if reasons:
    return _conclude(reasons)

  _print(
    report.program_lines(
      [
        (step.name, step.work, model_costs.training_flops(passes)),
        (query.name, query.work, model_costs.forward_flops(passes[0])),
        (search.name, search.work, None),
        (
          passage.name,
          passage.work,
          model_costs.forward_flops(
            encoder_pass(
              pretraining.dual_encoder.bert, sequences=batch / builder_mesh.size, length=length
            )
          ),
        ),
      ]
    )
  )
  _print(report.collective_lines(step.collectives))
  step_roofline = roofline(step.work, chip)
  _print(
    report.step_lines(
      step_roofline,
      efficiency=efficiency,
      useful_flops=model_costs.model_flops(passes),
      chip=chip,
    )
  )
  times = {
    "embed_seconds": math.ceil(num_passages / batch)
    * roofline(passage.work, builder_chip).seconds
    / efficiency,
    "build_seconds": generation_costs.build_seconds(index, cores=builder_chip.host_cores),
    "load_seconds": generation_costs.load_seconds(index),
  }
  stale = generation_costs.staleness(
    **times,
    step_seconds=step_roofline.seconds / efficiency,
    checkpoint_every=pretraining.checkpoint_every,
  )
  _print(report.refresh_lines(**times, stale=stale))
  _print(
    report.storage_lines(
      index,
      host_bytes=host_bytes,
      chip=chip,
      checkpoint_bytes=_checkpoint_bytes(pretraining, mesh),
      keep_generations=keep_generations,
      keep_checkpoints=pretraining.keep_checkpoints,
    )
  )
  return _conclude([])


def _print(lines: list[str]) -> None:
  print("\n".join(lines), flush=True)


def _conclude(reasons: list[str]) -> int:
  _print([report.verdict(reasons)])
  return 2 if reasons else 0


def _check_divides(pretraining: Pretraining, mesh) -> None:
  parts = mesh.shape["data"] * pretraining.accumulate_steps
  if pretraining.batch_size % parts:
    raise ValueError(
      f"batch_size={pretraining.batch_size} cannot be split over {mesh.shape['data']} parts of the "
      f"mesh and {pretraining.accumulate_steps} accumulate_steps; make it a multiple of {parts}"
    )


def _index(
  pretraining: Pretraining, searcher: SearcherConfig, *, num_passages: int, dtype: np.dtype
) -> generation_costs.Index:
  config = searcher.for_corpus(num_passages)
  return generation_costs.Index(
    passages=num_passages,
    width=pretraining.dual_encoder.projection_size,
    bytes_per_value=dtype.itemsize,
    shards=0 if config.kind == "device" else config.num_shards,
    leaves=config.num_leaves,
    training_rows=config.training_sample_size,
    dimensions_per_code=config.dimensions_per_block,
  )


def _estimate(
  pretraining: Pretraining, mesh, passes: list[model_costs.Pass], index: generation_costs.Index
) -> MemoryEstimate:
  state = pretraining.program(mesh).abstract_state
  batch = pretraining.abstract_batch()
  parameters = _bytes_on_a_device(state.params)
  gathered = _bytes_on_a_device(
    pretraining.with_layout("replicated").program(mesh).abstract_state.params
  )
  kept = model_costs.activation_bytes(passes) / pretraining.accumulate_steps
  shard = device_searcher.rows_per_device(index.passages, mesh.size)
  shard *= index.width * index.bytes_per_value
  return MemoryEstimate(
    parameters=parameters,
    optimizer=_bytes_on_a_device(state.opt_state),
    # Gradients are as large as the parameters that they are of, where they are used.
    activations=round(kept) + gathered + (gathered if pretraining.layout != "replicated" else 0),
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
  encode = query_encoder_program(pretraining.model, sharding=program.batch_sharding)
  search = device_searcher.search_program(
    mesh,
    num_passages=index.passages,
    k=min(pretraining.retrieval.num_passages, index.passages),
    recall_target=None,
  )
  return [
    compile_program("train step", program.train_step, state, batch, num_devices=mesh.size),
    compile_program(
      "query encoder", encode, state.params, batch.queries.query, num_devices=mesh.size
    ),
    compile_program(
      "search on the devices",
      search,
      *device_searcher.abstract_search(
        mesh,
        num_passages=index.passages,
        embedding_size=index.width,
        dtype=dtype,
        batch_size=pretraining.batch_size,
      ),
      num_devices=mesh.size,
    ),
  ]


def _builder_batch(tokens_per_batch: int, *, length: int, num_devices: int) -> int:
  """Returns the passages of a batch as `passage_embedding.passage_batches` makes them."""
  return max(num_devices, tokens_per_batch // length // num_devices * num_devices)


def _passage_program(pretraining: Pretraining, mesh, *, batch: int, length: int) -> CompiledProgram:
  """Compiles the index builder's passage encoder."""
  params = pretraining.with_layout("replicated").program(mesh).abstract_state.params
  return compile_program(
    "passage encoder",
    passage_encoder_program(Tower(pretraining.dual_encoder)),
    passage_tower_params(params),
    _placed(abstract_tokens(batch, length), partitioning.batch_sharding(mesh)),
    num_devices=mesh.size,
  )


def _placed(tree, sharding):
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
  )
