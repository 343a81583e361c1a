"""Compiles pre-training for absent devices, and tells whether it fits and how long it takes."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import partitioning
from realm_jax.foundations import choices
from realm_jax.index import device_searcher
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.models.encoder import num_groups, passage_encoder_program, query_encoder_program
from realm_jax.training.ahead_of_time import (
  GIB,
  CompiledProgram,
  Topology,
  compile_program,
  open_topology,
  peak_of,
)
from realm_jax.training.examples import PairData
from realm_jax.training.plain_training import ContrastiveTraining
from realm_jax.training.pretraining import Pretraining, abstract_tokens


def plan(
  *,
  topology: str,
  pretraining: Pretraining = Pretraining(),
  builder: BuilderConfig = BuilderConfig(),
  num_passages: choices.Count | None = None,
  retriever_batch_size: choices.Count | None = None,
  share_of_peak: Annotated[float, choices.Bounds(above=0, most=1)] = 0.5,
) -> int:
  """Prints the memory of every program of a pre-training, whether it fits, and its times.

  Nothing runs on an accelerator: the programs of `realm pretrain`, `realm train_retriever` and
  `realm build_index` are compiled for the named devices. Those of a TPU can be compiled on any
  machine with libtpu (the extra `tpu`), those of a GPU only where it is. A training that does not
  fit is compiled with more accumulation steps, which do not change what it learns, until it fits.
  Times are the compiler's operations and bytes at a share of the devices' published peak.

  Args:
    topology: The devices: v3:8x8, v4:4x4x4, v5e:8x8, v6e:8x8, cpu:8, or local for this machine's.
    pretraining: The configuration of the training.
    builder: The index builder.
    num_passages: Number of passages in the knowledge corpus, for the time of a generation, and for
      a search on the devices.
    retriever_batch_size: Pairs per step of `realm train_retriever`; None leaves its step out.
    share_of_peak: Share of the peak that the devices are expected to reach.

  Returns:
    0 if it fits, 2 if it does not.

  Raises:
    ValueError: If a topology is unknown or does not divide a batch, or the number of passages is
      needed and not given.
  """
  for name, count in (
    ("num_passages", num_passages),
    ("retriever_batch_size", retriever_batch_size),
  ):
    if count is not None and count < 1:
      raise ValueError(f"{name}={count}; it must be at least 1")
  if not 0 < share_of_peak <= 1:
    raise ValueError(f"share_of_peak={share_of_peak}; it must be above 0 and at most 1")
  if builder.searcher.kind == "device" and num_passages is None:
    raise ValueError("a search on the devices needs the number of passages; give --num_passages")
  devices = open_topology(topology)
  if devices.devices[0].platform != "cpu":
    pretraining = pretraining.on_accelerators()
  data, retrieval = pretraining.data, pretraining.retrieval
  planned = _Planned(
    pretraining=pretraining,
    builder=builder,
    topology=devices,
    num_passages=num_passages if builder.searcher.kind == "device" else None,
  )
  print(
    f"{data.batch_size} queries x {retrieval.num_passages} passages per step on {topology}:"
    f" {len(devices.devices)} devices of {devices.usable_bytes / GIB:.2f} GiB for programs\n"
    f"{'GiB of a device':26}{'arguments':>11}{'temporaries':>13}{'others':>9}{'in all':>9}",
    flush=True,
  )
  refused, compiled = {}, {}
  for name, program, arguments, resident in planned.programs(retriever_batch_size):
    compiled[name] = compile_program(name, program, *arguments)
    if reason := _refusal(name, compiled[name], resident=resident, topology=devices):
      refused[name] = reason
  for line in planned.times(compiled, num_passages or 1_000_000, share_of_peak):
    print(line, flush=True)
  if "train step" in refused and (parts := planned.accumulation_that_fits()):
    refused["train step"] += f"; it fits with --accumulate_steps={parts}"
  print("does not fit, because " + "; ".join(refused.values()) if refused else "fits", flush=True)
  return 2 if refused else 0


def _refusal(name: str, compiled: CompiledProgram, *, resident: int, topology: Topology) -> str:
  """Prints the memory of a program, and returns why it cannot run, if so.

  Args:
    resident: Bytes in use on a device besides the program's.
  """
  if compiled.refusal:
    print(f"  {name:24} does not compile", flush=True)
    return f"the {name} does not compile: {compiled.refusal}"
  others = compiled.result_bytes + compiled.code_bytes + resident
  sizes = (compiled.argument_bytes, compiled.temporary_bytes, others)
  needed = sum(sizes)
  columns = (f"{size / GIB:{width}.2f}" for size, width in zip(sizes, (11, 13, 9), strict=True))
  print(f"  {name:24}{''.join(columns)}{needed / GIB:9.2f}", flush=True)
  if needed <= topology.usable_bytes:
    return ""
  return (
    f"the {name} needs {needed / GIB:.2f} GiB of a device's {topology.usable_bytes / GIB:.2f} GiB; "
    "lower batch_size, use more chips, accumulate_steps, remat or layout=fully_sharded"
  )


@dataclasses.dataclass(kw_only=True)
class _Planned:
  """A training and an index builder on their planned devices.

  Attributes:
    num_passages: Number of passages that the devices hold and search, or None.
  """

  pretraining: Pretraining
  builder: BuilderConfig
  topology: Topology
  num_passages: int | None

  def __post_init__(self):
    pretraining, devices = self.pretraining, self.topology.devices
    self.mesh = partitioning.make_mesh(model=pretraining.mesh.model_parallel, devices=devices)
    partitioning.check_divides(
      self.mesh, pretraining.mesh.accumulate_steps, batch_size=pretraining.data.batch_size
    )
    self.program = pretraining.program(self.mesh)
    self.width = pretraining.model.dual_encoder.embedding_size
    rows = device_searcher.rows_per_device(self.num_passages or 0, len(devices))
    self.index_bytes = rows * self.width * np.dtype(self.builder.dtype).itemsize
    self.num_asked = pretraining.data.batch_size * pretraining.retrieval.searches_per_query

  def programs(self, retriever_batch_size: int | None) -> Iterator[tuple[str, object, tuple, int]]:
    """Yields name, program and arguments of each, and the bytes resident besides them."""
    pretraining, program = self.pretraining, self.program
    dual_encoder, state = pretraining.model.dual_encoder, program.abstract_state
    batch = _placed(pretraining.abstract_batch(), program.batch_sharding)
    indexes = 2 * self.index_bytes  # the next generation is loaded while one is searched
    slots = _bytes_on_a_device(state.opt_state)
    yield self._step(program, resident=indexes)
    encode = query_encoder_program(dual_encoder, sharding=program.batch_sharding)
    asked = abstract_tokens(self.num_asked, pretraining.data.query_length)
    asked = _placed(asked, program.batch_sharding)
    yield "query encoder", encode, (state.params["dual_encoder"], asked), slots + indexes
    evaluation = pretraining.evaluation_program(self.mesh)
    yield "evaluation", evaluation, (state.params, batch), slots + indexes
    if self.num_passages is not None:
      params = _bytes_on_a_device(state.params)
      yield "search on the devices", *self._search(), slots + params + self.index_bytes
    if retriever_batch_size is not None:
      yield "step of train_retriever", *self._retriever_step(retriever_batch_size), 0
    yield "passage encoder", *self._passage_encoder(), 0

  def accumulation_that_fits(self) -> int | None:
    """Returns the fewest accumulation steps with which the train step fits, or None."""
    mesh = self.pretraining.mesh
    rows = self.pretraining.data.batch_size // self.mesh.shape["data"]
    more = mesh.accumulate_steps * 2
    while rows % more == 0:
      split = dataclasses.replace(mesh, accumulate_steps=more)
      program = dataclasses.replace(self.pretraining, mesh=split).program(self.mesh)
      name = f"{more} accumulate_steps"
      _, step, arguments, resident = self._step(program, resident=2 * self.index_bytes)
      compiled = compile_program(name, step, *arguments)
      if not _refusal(name, compiled, resident=resident, topology=self.topology):
        return more
      more *= 2
    return None

  def times(
    self, compiled: dict[str, CompiledProgram], num_passages: int, share: float
  ) -> Iterator[str]:
    """Describes the seconds of a step and of a generation; nothing if the peak is unknown."""
    devices = self.topology.devices
    peak = peak_of(devices[0], num_devices=len(devices))
    if peak is None:
      return
    peak_in_words = f"{peak.flops / 1e12:.4g} TFLOP/s and {peak.memory_bandwidth / 1e9:.4g} GB/s"
    yield f"at {share:.0%} of {peak_in_words}:"
    # The parts of a batch, and groups of passages, are loops, whose bodies are counted once.
    step, parts = compiled["train step"], self.pretraining.mesh.accumulate_steps
    flops, moved = step.flops * parts, step.bytes_accessed * parts
    if flops:
      seconds = peak.seconds(flops=flops, bytes_accessed=moved) / share
      yield f"  {seconds:.3g} s a step: {flops / 1e12:.3g} TFLOP, {moved / 1e9:.3g} GB a device"
    encoder, rows = compiled["passage encoder"], self.passages_of_device
    length = self.pretraining.retrieval.passage_length
    part = num_passages / rows * num_groups(self.mesh, num_rows=rows, length=length)
    if encoder.flops:
      seconds = (
        peak.seconds(flops=encoder.flops * part, bytes_accessed=encoder.bytes_accessed * part)
        / share
      )
      yield (
        f"  {seconds / len(devices):.3g} s to embed {num_passages:,} passages of full length on as "
        f"many devices, {seconds:.4g} device-seconds"
      )

  @property
  def passages_of_device(self) -> int:
    """Passages that a device embeds at once."""
    length = self.pretraining.retrieval.passage_length
    return max(1, self.builder.tokens_per_batch // len(self.topology.devices) // length)

  def _step(self, program, *, resident: int) -> tuple[str, object, tuple, int]:
    batch = _placed(self.pretraining.abstract_batch(), program.batch_sharding)
    return "train step", program.jitted_step, (program.abstract_state, batch, np.int32(0)), resident

  def _search(self) -> tuple:
    """The search on the devices for the queries of a step, and its arguments."""
    mesh, pretraining, num_passages = self.mesh, self.pretraining, self.num_passages or 0
    program = device_searcher.search_program(
      mesh,
      num_passages=num_passages,
      k=min(pretraining.retrieval.num_passages, num_passages),
      recall_target=self.builder.searcher.target_recall,
    )
    embeddings = device_searcher.abstract_embeddings(
      mesh, num_passages=num_passages, embedding_size=self.width, dtype=self.builder.dtype
    )
    queries = jax.ShapeDtypeStruct((self.num_asked, self.width), jnp.float32)
    return program, (embeddings, _placed(queries, self.program.batch_sharding))

  def _retriever_step(self, batch_size: int) -> tuple:
    """The step of the inverse cloze task, and its arguments."""
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
    return program.jitted_step, (program.abstract_state, batch, np.int32(0))

  def _passage_encoder(self) -> tuple:
    """The builder's encoder of the longest passages on a mesh of one host, and its arguments."""
    devices, dual_encoder = self.topology.devices, self.pretraining.model.dual_encoder
    # Hosts are identical.
    mesh = partitioning.local_meshes(devices, process=devices[0].process_index)[0]
    length = self.pretraining.retrieval.passage_length
    passages = abstract_tokens(self.passages_of_device * mesh.size, length)
    replicated = dataclasses.replace(self.pretraining.mesh, layout="replicated")
    program = dataclasses.replace(self.pretraining, mesh=replicated).program(mesh)
    params = program.abstract_state.params["dual_encoder"]
    return passage_encoder_program(dual_encoder, mesh), (
      dual_encoder.params_of("passage", params),
      _placed(passages, partitioning.batch_sharding(mesh)),
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
