"""What a pre-training needs of devices that may be absent: memory, operations, bytes and times."""

import dataclasses
import math
from collections.abc import Generator, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import partitioning
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors import device_searcher
from realm_jax.models.encoder import num_groups, passage_encoder_program, query_encoder_program
from realm_jax.training.machines.accelerators import GIB, peak_of
from realm_jax.training.machines.ahead_of_time import CompiledProgram, Topology, compile_program
from realm_jax.training.recipes.examples import PairData
from realm_jax.training.recipes.plain_training import ContrastiveTraining
from realm_jax.training.recipes.pretraining import Pretraining, abstract_tokens
from realm_jax.training.run.train_program import TrainProgram

_STEP, _ENCODER = "train step", "passage encoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Program:
  """A program to compile.

  Attributes:
    resident: Bytes in use on a device besides the program's.
    repeats: How often its outer loop runs.
  """

  name: str
  jitted: Any
  arguments: tuple
  resident: int = 0
  repeats: int = 1


@dataclasses.dataclass(kw_only=True)
class PretrainingPlan:
  """A training and an index builder on their planned devices.

  Attributes:
    num_passages: Number of passages in the knowledge corpus.
    retriever_batch_size: Pairs per step of `realm train_retriever`; None leaves its step out.
    refused: Why programs cannot run, by name, as far as `lines` has come.
  """

  pretraining: Pretraining
  builder: BuilderConfig
  topology: Topology
  num_passages: int | None
  retriever_batch_size: int | None
  refused: dict[str, str] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    devices = self.topology.devices
    if devices[0].platform != "cpu":
      self.pretraining = self.pretraining.on_accelerators()
    pretraining = self.pretraining
    self.mesh = partitioning.make_mesh(model=pretraining.mesh.model_parallel, devices=devices)
    partitioning.check_divides(
      self.mesh, pretraining.mesh.accumulate_steps, batch_size=pretraining.data.batch_size
    )
    self.program = pretraining.program(self.mesh)
    self.width = pretraining.model.dual_encoder.embedding_size
    self.searched = self.num_passages if self.builder.searcher.kind == "device" else None
    rows = device_searcher.rows_per_device(self.searched or 0, len(devices))
    self.index_bytes = rows * self.width * np.dtype(self.builder.dtype).itemsize

  def lines(self, *, share_of_peak: float) -> Iterator[str]:
    """Compiles every program, and yields the lines of a report as they become known."""
    data, retrieval, devices = self.pretraining.data, self.pretraining.retrieval, self.topology
    yield (
      f"{data.batch_size} queries x {retrieval.num_passages} passages per step on {devices.name}:"
      f" {len(devices.devices)} devices of {devices.usable_bytes / GIB:.2f} GiB for programs"
    )
    yield f"{'GiB of a device':26}{'arguments':>11}{'temporaries':>13}{'others':>9}{'in all':>9}"
    compiled = {}
    for program in self._programs():
      compiled[program.name] = yield from self._compiled(program)
    yield from self._times(compiled, share_of_peak)
    if _STEP in self.refused and (parts := (yield from self._accumulation_that_fits())):
      self.refused[_STEP] += f"; it fits with --accumulate_steps={parts}"
    reasons = "; ".join(self.refused.values())
    yield f"does not fit, because {reasons}" if reasons else "fits"

  def _compiled(self, program: _Program) -> Generator[str, None, CompiledProgram]:
    """Yields the line of a program's memory, and returns the program compiled."""
    name = program.name
    compiled = compile_program(name, program.jitted, *program.arguments, repeats=program.repeats)
    if compiled.refusal:
      self.refused[name] = f"the {name} does not compile: {compiled.refusal}"
      yield f"  {name:24} does not compile"
      return compiled
    others = compiled.result_bytes + compiled.code_bytes + program.resident
    sizes = (compiled.argument_bytes, compiled.temporary_bytes, others)
    needed, usable = sum(sizes), self.topology.usable_bytes
    if needed > usable:
      self.refused[name] = (
        f"the {name} needs {needed / GIB:.2f} GiB of a device's {usable / GIB:.2f} GiB; lower "
        "batch_size, use more chips, accumulate_steps, remat or layout=fully_sharded"
      )
    columns = (f"{size / GIB:{width}.2f}" for size, width in zip(sizes, (11, 13, 9), strict=True))
    yield f"  {name:24}{''.join(columns)}{needed / GIB:9.2f}"
    return compiled

  def _accumulation_that_fits(self) -> Generator[str, None, int | None]:
    """Yields lines, and returns the fewest accumulation steps with which the step fits, or None."""
    mesh = self.pretraining.mesh
    rows = self.pretraining.data.batch_size // self.mesh.shape["data"]
    more = mesh.accumulate_steps * 2
    while rows % more == 0:
      split = dataclasses.replace(mesh, accumulate_steps=more)
      program = dataclasses.replace(self.pretraining, mesh=split).program(self.mesh)
      tried = dataclasses.replace(self._step(program), name=f"{more} accumulate_steps")
      yield from self._compiled(tried)
      if not self.refused.pop(tried.name, None):
        return more
      more *= 2
    return None

  def _programs(self) -> Iterator[_Program]:
    pretraining, program = self.pretraining, self.program
    dual_encoder, state = pretraining.model.dual_encoder, program.abstract_state
    indexes = 2 * self.index_bytes  # the next generation is loaded while one is searched
    slots = _bytes_on_a_device(state.opt_state)
    yield self._step(program)
    asked = abstract_tokens(pretraining.data.batch_size, pretraining.data.query_length)
    yield _Program(
      name="query encoder",
      jitted=query_encoder_program(dual_encoder, sharding=program.batch_sharding),
      arguments=(state.params["dual_encoder"], _placed(asked, program.batch_sharding)),
      resident=slots + indexes,
    )
    yield _Program(
      name="evaluation",
      jitted=pretraining.evaluation_program(self.mesh),
      arguments=(state.params, _placed(pretraining.abstract_batch(), program.batch_sharding)),
      resident=slots + indexes,
      repeats=pretraining.mesh.accumulate_steps,
    )
    if self.searched is not None:
      yield self._search(self.searched, slots + _bytes_on_a_device(state.params))
    if self.retriever_batch_size is not None:
      yield self._retriever_step(self.retriever_batch_size)
    yield self._passage_encoder()

  def _times(self, compiled: dict[str, CompiledProgram], share: float) -> Iterator[str]:
    """Describes the seconds of a step and of a generation; nothing if the peak is unknown."""
    devices, num_passages = self.topology.devices, self.num_passages or 1_000_000
    peak = peak_of(devices[0], num_devices=len(devices))
    if peak is None:
      return

    yield (
      f"estimated at {share:.0%} of {peak.flops / 1e12:.4g} TFLOP/s and "
      f"{peak.memory_bandwidth / 1e9:.4g} GB/s:"
    )
    step, encoder = compiled[_STEP].counts, compiled[_ENCODER].counts
    if step.flops:
      kernels = f" in {step.kernels:,} kernels" if step.kernels else ""
      flops, moved = step.flops / 1e12, step.bytes_accessed / 1e9
      seconds = peak.seconds(step) / share
      yield f"  {seconds:.3g} s a step: {flops:.3g} TFLOP, {moved:.3g} GB a device{kernels}"
    if encoder.flops:
      on_all = peak.seconds(encoder) / share * num_passages / self.passages_of_device
      yield (
        f"  {on_all / len(devices):.3g} s to embed {num_passages:,} passages of full length on as "
        f"many devices, {on_all:.4g} device-seconds"
      )

  @property
  def passages_of_device(self) -> int:
    """Passages that a device embeds at once."""
    length = self.pretraining.retrieval.passage_length
    return max(1, self.builder.tokens_per_batch // len(self.topology.devices) // length)

  def _step(self, program: TrainProgram) -> _Program:
    batch = _placed(self.pretraining.abstract_batch(), program.batch_sharding)
    return _Program(
      name=_STEP,
      jitted=program.jitted_step,
      arguments=(program.abstract_state, batch, np.int32(0)),
      resident=2 * self.index_bytes,
      repeats=self.pretraining.mesh.accumulate_steps,
    )

  def _search(self, num_passages: int, resident: int) -> _Program:
    """The search on the devices for the queries of a step."""
    mesh = self.mesh
    program = device_searcher.search_program(
      mesh,
      num_passages=num_passages,
      k=min(self.pretraining.retrieval.num_passages, num_passages),
      recall_target=self.builder.searcher.target_recall,
    )
    embeddings = device_searcher.abstract_embeddings(
      mesh, num_passages=num_passages, embedding_size=self.width, dtype=self.builder.dtype
    )
    num_queries = self.pretraining.data.batch_size
    queries = jax.ShapeDtypeStruct((num_queries, self.width), jnp.float32)
    return _Program(
      name="search on the devices",
      jitted=program,
      arguments=(embeddings, _placed(queries, self.program.batch_sharding)),
      resident=resident + self.index_bytes,
    )

  def _retriever_step(self, batch_size: int) -> _Program:
    """The step of the inverse cloze task."""
    partitioning.check_divides(self.mesh, 1, retriever_batch_size=batch_size)
    pretraining, length = self.pretraining, self.pretraining.retrieval.passage_length
    query_length = min(PairData().query_length, length)
    ict = ContrastiveTraining(
      mesh=dataclasses.replace(pretraining.mesh, accumulate_steps=1),
      dual_encoder=pretraining.model.dual_encoder,
      data=PairData(batch_size=batch_size, query_length=query_length, passage_length=length),
    )
    program = ict.program(self.mesh)
    batch = _placed(ict.abstract_batch(), program.batch_sharding)
    arguments = program.abstract_state, batch, np.int32(0)
    return _Program(name="step of train_retriever", jitted=program.jitted_step, arguments=arguments)

  def _passage_encoder(self) -> _Program:
    """The builder's encoder of the longest passages on a mesh of one host."""
    devices, dual_encoder = self.topology.devices, self.pretraining.model.dual_encoder
    # Hosts are identical.
    mesh = partitioning.local_meshes(devices, process=devices[0].process_index)[0]
    length, rows = self.pretraining.retrieval.passage_length, self.passages_of_device
    passages = abstract_tokens(rows * mesh.size, length)
    replicated = dataclasses.replace(self.pretraining.mesh, layout="replicated")
    program = dataclasses.replace(self.pretraining, mesh=replicated).program(mesh)
    params = dual_encoder.params_of("passage", program.abstract_state.params["dual_encoder"])
    return _Program(
      name=_ENCODER,
      jitted=passage_encoder_program(dual_encoder, mesh),
      arguments=(params, _placed(passages, partitioning.batch_sharding(mesh))),
      repeats=num_groups(self.mesh, num_rows=rows, length=length),
    )


def _bytes_on_a_device(tree) -> int:
  return sum(
    math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def _placed(tree, sharding):
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
  )
