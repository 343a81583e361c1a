"""Compiles pre-training for absent devices, and tells whether it fits and how fast it is."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning, processes
from realm_jax.index import device_searcher
from realm_jax.index.searcher import DIMENSIONS_PER_CODE
from realm_jax.models.encoder_programs import passage_encoder_program, query_encoder_program
from realm_jax.planning import chips, compiling_process, generation_costs, model_costs, report
from realm_jax.planning.ahead_of_time import CompiledProgram, compile_program, open_topology
from realm_jax.planning.roofline import Work, roofline
from realm_jax.publishing.builder_config import POLL_SECONDS, SAMPLE_QUERIES, BuilderConfig
from realm_jax.retrieval.passage_embedding import BUCKET_STEP, padded_lengths
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.example_sources import PairData
from realm_jax.runs.pretraining import Pretraining, abstract_tokens
from realm_jax.training.train_program import TrainProgram

# The estimate's error is smaller; beyond this, the plan is rejected without compiling.
_HOPELESS = 1.5
_LARGEST_BUILDER = 1024  # chips


def plan(
  *,
  topology: str,
  num_passages: int | None = None,
  passages: str | None = None,
  pretraining: Pretraining = Pretraining(),
  builder: BuilderConfig = BuilderConfig(),
  builder_topology: str | None = None,
  mean_passage_length: int = 216,
  retriever_batch_size: int | None = None,
  target_staleness: int = 500,
  efficiency: float = 0.5,
) -> int:
  """Prints memory, arithmetic, traffic, times, staleness and storage of pre-training.

  Nothing runs on an accelerator: the programs of `realm pretrain`, `realm train_retriever` and
  `realm build_index` are compiled for the named devices on any machine. TPUs need libtpu (the extra
  `tpu`).

  Args:
    topology: The trainer's devices: v3:8x8, v4:4x4x4, v5e:8x8, v6e:8x8, gpu:1 (of 24 GB), cpu:8.
    num_passages: Number of passages in the knowledge corpus.
    passages: Directory of the knowledge corpus, which then determines the number and the mean
      length of passages.
    pretraining: The configuration of the training.
    builder: The index builder.
    builder_topology: The index builder's devices; None uses the trainer's.
    mean_passage_length: Mean wordpieces of a passage with its title; the default is that of the
      paper's corpus.
    retriever_batch_size: Pairs per step of `realm train_retriever`; None leaves its step out.
    target_staleness: Steps that the index may lag behind when it is swapped in; the table of index
      builders ends with the smallest that stays within.
    efficiency: Share of the roofline that real runs reach, for all times.

  Returns:
    0 if it fits, 2 if it does not.

  Raises:
    ValueError: If a topology is unknown or does not divide a batch, the number of passages is not
      given, or a number is out of range.
  """
  if not 0 < efficiency <= 1:
    raise ValueError(f"efficiency={efficiency}; it must lie in (0, 1]")
  counts = {
    "num_passages": num_passages,
    "mean_passage_length": mean_passage_length,
    "retriever_batch_size": retriever_batch_size,
  }
  for name, count in counts.items():
    if count is not None and count < 1:
      raise ValueError(f"{name}={count}; it must be at least 1")
  trainer = chips.parse_topology(topology)
  if trainer.kind != "cpu":
    pretraining = pretraining.on_accelerators()
  longest = pretraining.retrieval.passage_length
  mean_length = min(mean_passage_length + BUCKET_STEP / 2, longest)  # half a step is padding
  if passages is not None:
    lengths_N = padded_lengths(PassageStore(passages).lengths(), passage_length=longest)
    num_passages, mean_length = len(lengths_N), float(lengths_N.mean())
  if num_passages is None:
    raise ValueError("no number of passages; give --num_passages, or a corpus with --passages")
  settings = {
    "pretraining": pretraining,
    "builder": builder,
    "trainer": trainer,
    "builder_topology": chips.parse_topology(builder_topology or topology),
    "num_passages": num_passages,
    "mean_length": mean_length,
    "retriever_batch_size": retriever_batch_size,
    "efficiency": efficiency,
  }
  planned = _Planned(**settings)
  _print(
    [
      f"{pretraining.data.batch_size} queries x {pretraining.retrieval.num_passages} passages"
      f" per step on {trainer}: {trainer.num_devices} devices, {trainer.num_hosts} hosts;"
      f" index of {num_passages:,} passages of {planned.mean_length:.0f} wordpieces, padded, by"
      f" {planned.builder_topology}"
    ]
  )
  estimate, chip = planned.estimate, planned.chip
  if hopeless := _reasons_before_compiling(planned):
    _print(report.memory_lines(estimate, compiled_step=None, chip=chip))
    return _conclude(hopeless)
  compiled = planned.estimated()
  can_compile = chips.GPUS.isdisjoint({trainer.kind, planned.builder_topology.kind})
  if can_compile:
    compilations = functools.partial(_compilations, settings)
    compiled = compiling_process.compile_all(compilations, preload=__name__)
  programs = {name: planned.program_of(program) for name, program in compiled.items()}
  step = programs["train step"].compiled
  compiled_step = step.memory_bytes if can_compile and not step.refusal else None
  _print(report.memory_lines(estimate, compiled_step=compiled_step, chip=chip))
  _print(report.program_lines([(p.compiled, p.flops) for p in programs.values()]))
  reasons = _refusals(programs)
  if not reasons:
    _print_performance(planned, programs, target_staleness=target_staleness)
  return _conclude(reasons)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Program:
  """A program of a run.

  Attributes:
    resident: Bytes in use on the device besides its arguments and buffers.
    flops: The analytic operations of a device, if known.
  """

  compiled: CompiledProgram
  chip: chips.Chip
  resident: int = 0
  flops: float | None = None


@dataclasses.dataclass(kw_only=True)
class _Planned:
  """A training and an index builder on their planned devices.

  Attributes:
    mean_length: Mean wordpieces of a passage in the builder's batches, with padding.
    retriever_batch_size: Pairs per step of the inverse cloze task, if any.
    efficiency: Share of the roofline that real runs reach.
  """

  pretraining: Pretraining
  builder: BuilderConfig
  trainer: chips.Topology
  builder_topology: chips.Topology
  num_passages: int
  mean_length: float
  retriever_batch_size: int | None
  efficiency: float

  def __post_init__(self):
    self.devices, self.chip = open_topology(self.trainer)
    model_parallel = self.pretraining.mesh.model_parallel
    self.mesh = partitioning.make_mesh(model=model_parallel, devices=self.devices)
    data = self.pretraining.data
    _check_divides(self.mesh, self.pretraining.mesh.accumulate_steps, batch_size=data.batch_size)
    if self.retriever_batch_size is not None:
      _check_divides(self.mesh, 1, retriever_batch_size=self.retriever_batch_size)
    devices, self.builder_chip = open_topology(self.builder_topology)
    # One host's meshes; all hosts are identical.
    self.builder_meshes = partitioning.local_meshes(devices, process=devices[0].process_index)
    self.dtype = np.dtype(self.builder.dtype)
    self.searcher = config = self.builder.searcher.for_corpus(self.num_passages)
    self.index = generation_costs.Index(
      passages=self.num_passages,
      width=self.pretraining.model.dual_encoder.embedding_size,
      bytes_per_value=self.dtype.itemsize,
      shards=0 if config.kind == "device" else config.num_shards,
      leaves=config.num_leaves,
      training_rows=config.training_sample_size,
      dimensions_per_code=DIMENSIONS_PER_CODE,
    )

  @functools.cached_property
  def passes(self) -> list[model_costs.Pass]:
    """The encoder passes of one device in a step."""
    passes = partitioning.on_mesh(self.mesh, self.pretraining.passes)
    return passes(num_devices=self.mesh.size)

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
    rows = device_searcher.rows_per_device(index.passages, self.trainer.num_devices)
    shard = 0 if index.shards else rows * index.width * index.bytes_per_value
    return model_costs.MemoryEstimate(
      parameters=_bytes_on_a_device(state.params),
      optimizer=_bytes_on_a_device(state.opt_state),
      # Gradients are as large as their parameters.
      activations=round(kept) + gathered * (1 if pretraining.mesh.layout == "replicated" else 2),
      batch=_bytes(batch) // self.mesh.shape["data"],
      search_shard=2 * shard,  # the next generation is loaded while one is searched
    )

  @property
  def passages_of_a_device(self) -> int:
    """The longest passages in a device's part of a batch, as `passage_embedding` makes them."""
    topology, length = self.builder_topology, self.pretraining.retrieval.passage_length
    return max(1, self.builder.tokens_per_batch // topology.num_devices // length)

  def compilations(self) -> dict[str, Callable[[], CompiledProgram]]:
    """Returns what compiles each program of trainer, warm start and index builder."""
    pretraining, program, mesh = self.pretraining, self.program, self.mesh
    dual_encoder, state = pretraining.model.dual_encoder, program.abstract_state
    batch = _placed(pretraining.abstract_batch(), program.batch_sharding)
    encode = query_encoder_program(dual_encoder, sharding=program.batch_sharding)
    figures = jax.jit(pretraining.figures)
    of_trainer = {
      "train step": (program.jitted_step, state, batch, np.int32(0)),
      "query encoder": (encode, state.params["dual_encoder"], batch.queries.query),
      "evaluation": (figures, state.params, batch),
      "exchange": self._exchange(),
    }
    if not self.index.shards:
      of_trainer["search on the devices"] = self._search()
    if self.retriever_batch_size is not None:
      of_trainer["step of train_retriever"] = self._retriever_step(self.retriever_batch_size)
    compilations = {
      name: functools.partial(compile_program, name, *given, num_devices=mesh.size)
      for name, given in of_trainer.items()
    }
    name, size = "passage encoder", self.builder_meshes[0].size
    encoder = functools.partial(compile_program, name, *self._passage_encoder(), num_devices=size)
    return {**compilations, name: encoder}

  def program_of(self, compiled: CompiledProgram) -> _Program:
    """Returns a compiled program with what is known of it besides."""
    estimate, name = self.estimate, compiled.name
    if name == "passage encoder":
      flops = self._embedding_flops(self.pretraining.retrieval.passage_length)
      return _Program(compiled=compiled, chip=self.builder_chip, flops=flops)
    if name == "train step":
      # The compiler counts a loop's body once. Outside the loop, the optimizer reads and writes.
      parts = self.pretraining.mesh.accumulate_steps
      work = compiled.work.repeated(parts, once_bytes=2 * estimate.state)
      compiled = dataclasses.replace(compiled, work=work)
    resident = {
      "train step": estimate.search_shard,
      "search on the devices": estimate.state + estimate.search_shard // 2,
      "step of train_retriever": 0,
    }
    data = self.pretraining.data
    queries = self.pretraining.text_passes((data.batch_size / self.mesh.size, data.query_length))
    flops = {
      "train step": model_costs.training_flops(self.passes),
      "query encoder": sum(map(model_costs.forward_flops, queries)),
    }
    return _Program(
      compiled=compiled,
      chip=self.chip,
      resident=resident.get(name, estimate.optimizer + estimate.search_shard),
      flops=flops.get(name),
    )

  def estimated(self) -> dict[str, CompiledProgram]:
    """Returns arithmetic and memory of devices that nothing is compiled for."""
    flops = {
      "train step": model_costs.training_flops(self.passes)
      / self.pretraining.mesh.accumulate_steps,
      "passage encoder": self._embedding_flops(self.pretraining.retrieval.passage_length),
    }
    memory = {"train step": self.estimate.step}
    return {
      name: CompiledProgram(
        name=name, argument_bytes=memory.get(name, 0), work=Work(flops=flops[name], memory_bytes=0)
      )
      for name in flops
    }

  def _exchange(self) -> tuple:
    """What the processes of the trainer decide together with, and the shapes of its arguments."""
    mesh = processes.process_mesh(self.devices)
    numbers = jax.ShapeDtypeStruct(
      (mesh.shape["processes"], 3),
      jnp.int32,
      sharding=NamedSharding(mesh, PartitionSpec("processes")),
    )
    return processes.exchange_program(mesh), numbers

  def _search(self) -> tuple:
    """The search on the devices for the queries of a step, and its arguments."""
    mesh, pretraining, width = self.mesh, self.pretraining, self.index.width
    program = device_searcher.search_program(
      mesh,
      num_passages=self.num_passages,
      k=min(pretraining.retrieval.num_passages, self.num_passages),
      recall_target=self.searcher.target_recall,
    )
    embeddings = device_searcher.abstract_embeddings(
      mesh, num_passages=self.num_passages, embedding_size=width, dtype=self.dtype
    )
    queries = jax.ShapeDtypeStruct((pretraining.data.batch_size, width), jnp.float32)
    return program, embeddings, _placed(queries, self.program.batch_sharding)

  def _retriever_step(self, batch_size: int) -> tuple:
    """The step of the inverse cloze task on the trainer's devices, and its arguments."""
    pretraining, default = self.pretraining, PairData()
    ict = ContrastiveTraining(
      mesh=dataclasses.replace(pretraining.mesh, accumulate_steps=1),
      dual_encoder=pretraining.model.dual_encoder,
      data=dataclasses.replace(
        default,
        batch_size=batch_size,
        query_length=min(default.query_length, pretraining.retrieval.passage_length),
        passage_length=pretraining.retrieval.passage_length,
      ),
    )
    program = ict.program(self.mesh)
    batch = _placed(ict.abstract_batch(), program.batch_sharding)
    return program.jitted_step, program.abstract_state, batch, np.int32(0)

  def _passage_encoder(self) -> tuple:
    """The builder's encoder of the longest passages on a mesh of one host, and its arguments."""
    mesh, retrieval = self.builder_meshes[0], self.pretraining.retrieval
    passages = abstract_tokens(self.passages_of_a_device * mesh.size, retrieval.passage_length)
    return (
      passage_encoder_program(self.pretraining.model.dual_encoder, mesh),
      self._passage_params(mesh),
      _placed(passages, partitioning.batch_sharding(mesh)),
    )

  def _embedding_flops(self, length: float) -> float:
    """Returns the operations of embedding a device's part of a batch; 0 if none are counted."""
    passages = self.pretraining.text_passes((self.passages_of_a_device, round(length)))
    return sum(map(model_costs.forward_flops, passages))

  def times(self, passage_encoder: CompiledProgram, *, num_chips: int) -> generation_costs.Times:
    """Returns what a generation takes with a builder of this many chips of its kind."""
    chip = self.builder_chip
    devices, hosts = num_chips * chip.devices_per_chip, -(-num_chips // chip.chips_per_host)
    longest = self.pretraining.retrieval.passage_length
    mean, whole = (self._embedding_flops(n) or n for n in (self.mean_length, longest))
    batches = math.ceil(self.num_passages / (self.passages_of_a_device * devices))
    seconds = roofline(passage_encoder.work, chip).seconds / self.efficiency
    params, cores = self._passage_params(self.builder_meshes[0]), hosts * chip.host_cores
    tower_seconds = generation_costs.transfer_seconds(_bytes(params))
    state_bytes, polls = _bytes(self.program.abstract_state), self.pretraining.refresh.poll_seconds
    return generation_costs.Times(
      save=generation_costs.transfer_seconds(state_bytes / self.trainer.num_hosts),
      polls=(POLL_SECONDS + polls) / 2,
      read=tower_seconds,
      embed=batches * seconds * mean / whole,
      build=generation_costs.build_seconds(self.index, cores=cores),
      # The encoder of queries is read after the index is built.
      measure=tower_seconds
      + generation_costs.measure_seconds(
        self.index, queries=SAMPLE_QUERIES, cores=cores, hosts=hosts
      ),
      write=generation_costs.transfer_seconds(self.index.bytes / hosts),
      load=generation_costs.load_seconds(self.index),
    )

  def _gathered_params(self, mesh: Mesh) -> dict:
    """Returns the shapes of the parameters, each whole on every device."""
    return self.pretraining.with_layout("replicated").program(mesh).abstract_state.params

  def _passage_params(self, mesh: Mesh) -> dict:
    params = self._gathered_params(mesh)["dual_encoder"]
    return self.pretraining.model.dual_encoder.params_of("passage", params)


def _compilations(settings: Mapping[str, Any]) -> dict[str, Callable[[], CompiledProgram]]:
  return _Planned(**settings).compilations()


def _reasons_before_compiling(planned: _Planned) -> list[str]:
  """Returns why the training cannot fit, whatever the compiler does; empty if it might."""
  estimate, chip, reasons = planned.estimate, planned.chip, []
  if estimate.total > _HOPELESS * chip.usable_bytes:
    reasons.append(report.over_capacity("the train step", estimate.total, chip))
  host_bytes = generation_costs.host_bytes(planned.index)
  if host_bytes > chip.host_memory_bytes:
    reasons.append(
      f"two generations and the program take {host_bytes / chips.GIB:.0f} GiB of a host's "
      f"{chip.host_memory_bytes / chips.GIB:.0f} GiB; use --builder.dtype=bfloat16"
    )
  return reasons


def _refusals(programs: Mapping[str, _Program]) -> list[str]:
  """Returns the reasons why programs cannot run, if any."""
  reasons = []
  for name, program in programs.items():
    needed, chip = program.compiled.memory_bytes + program.resident, program.chip
    if program.compiled.refusal:
      reasons.append(f"{name}: {program.compiled.refusal}")
    elif needed > chip.usable_bytes:
      reasons.append(report.over_capacity(f"the {name}", needed, chip))
  return reasons


def _print_performance(
  planned: _Planned, programs: Mapping[str, _Program], *, target_staleness: int
) -> None:
  """Prints traffic, times, staleness and storage."""
  step, encoder = (programs[name].compiled for name in ("train step", "passage encoder"))
  pretraining, index, efficiency = planned.pretraining, planned.index, planned.efficiency
  if step.seconds:
    _print(report.collective_lines(step.collectives))
  of_step = roofline(step.work, planned.chip)
  useful = model_costs.model_flops(planned.passes)
  _print(report.step_lines(of_step, efficiency=efficiency, useful_flops=useful, chip=planned.chip))
  stale = functools.partial(
    generation_costs.staleness,
    step_seconds=of_step.seconds / efficiency,
    checkpoint_every=pretraining.run.checkpoint_every,
  )
  topology = planned.builder_topology
  times = planned.times(encoder, num_chips=topology.num_chips)
  _print(report.refresh_lines(times, stale(times)))
  rows = []
  for num_chips in _sizes(topology):
    times = planned.times(encoder, num_chips=num_chips)
    name = chips.slices(topology.kind, num_chips)
    rows.append((f"{name}, {num_chips} chips", times, stale(times)))
    if rows[-1][-1].at_swap <= target_staleness:
      break
  if rows:
    _print(report.builder_lines(rows, target=target_staleness, least_seconds=times.load))
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


def _sizes(topology: chips.Topology) -> list[int]:
  """Returns the numbers of chips of index builders to compare: whole hosts, each twice the last."""
  if not topology.is_cloud_tpu:
    return []
  host = chips.CHIPS[topology.kind].chips_per_host
  doubled = (host * 2**power for power in itertools.count())
  return list(itertools.takewhile(lambda size: size <= _LARGEST_BUILDER, doubled))


def _print(lines: list[str]) -> None:
  print("\n".join(lines), flush=True)


def _conclude(reasons: list[str]) -> int:
  _print([report.verdict(reasons)])
  return 2 if reasons else 0


def _check_divides(mesh: Mesh, accumulate_steps: int, **batch_sizes: int) -> None:
  parts = mesh.shape["data"] * accumulate_steps
  for name, batch_size in batch_sizes.items():
    if batch_size % parts:
      raise ValueError(
        f"{name}={batch_size} cannot be split over {mesh.shape['data']} parts of the mesh and "
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
