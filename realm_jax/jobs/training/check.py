"""Checks the devices and the storage of a training, within minutes and before it is paid for."""

import contextlib
import dataclasses
import functools
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from realm_jax.checkpoints import orbax_files
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.devices import backend, directory_lock, partitioning, processes
from realm_jax.foundations import choices, object_store
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.index import assembly, device_searcher, generations, searcher
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.preparation.prepare_corpus import LearningConfig, prepare_corpus
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.models import fused_attention
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.index_refresher import RefreshConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.ahead_of_time import GIB, peak_of
from realm_jax.training.examples import MaskedQueryData
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.pretraining import ModelConfig, Pretraining
from realm_jax.training.training_config import RunConfig

_BERT = BertConfig(
  vocab_size=1024,
  hidden_size=16,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=48,
  dropout_rate=0.0,
)
_EVERY = 4  # steps between the checkpoints of the tiny training
_TINY = Pretraining(
  run=RunConfig(num_steps=_EVERY, log_every=1, checkpoint_every=_EVERY, on_collapse="warn"),
  optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=0, schedule="constant"),
  data=MaskedQueryData(batch_size=8, query_length=32, max_masks=3),
  model=ModelConfig(
    dual_encoder=DualEncoderConfig(bert=_BERT, projection_size=8), knowledge_augmented_encoder=_BERT
  ),
  retrieval=RetrievalConfig(num_passages=3, passage_length=32, joint_length=48),
  # The resumed training waits for the second generation.
  refresh=RefreshConfig(poll_seconds=0.1, max_staleness_steps=_EVERY, when_late="wait"),
)
WORKDIR_KIND = DirectoryKind(
  name="a check", files=("check-*/", "*_config.gin", directory_lock.LOCK_FILE)
)
_FACTOR_WEIGHT = 8  # so that 1 % is more than bfloat16 may be off
_SLOW = 0.1  # of the roofline


class CheckError(RuntimeError):
  """A result is wrong."""


def check(
  *,
  workdir: str | None = None,
  pretraining: Pretraining = Pretraining(),
  storage_mib: choices.CountOrZero = 256,
) -> int:
  """Prints what works on the devices that are there, and the setting that goes round what does not.

  Every host of a pod runs the same command. On CPUs, where this job can be tried out, examples are
  smaller and the step is that of a tiny training.

  Args:
    workdir: Directory or bucket to try; a subdirectory is written and left. None uses a temporary
      directory.
    pretraining: The training whose attention and step are tried; a batch that does not fit is
      halved until it does.
    storage_mib: Size of the arrays that are written and read.

  Returns:
    0 if everything works, 1 if not.
  """
  if storage_mib < 1:
    raise ValueError(f"storage_mib={storage_mib}; it must be at least 1")
  if workdir is None and jax.process_count() > 1:
    raise ValueError("several processes need a directory that all can reach; give --workdir")
  with tempfile.TemporaryDirectory() as temporary:
    if workdir is not None:
      WORKDIR_KIND.check(workdir)
    checks = _Checks(
      directory=os.path.join(workdir or temporary, processes.share(f"check-{time.time_ns()}")[0]),
      local=os.path.join(temporary, "corpora"),
      mesh=partitioning.make_mesh(),
      pretraining=pretraining,
      storage_bytes=storage_mib << 20,
    )
    failures = [_fails(*line) for line in checks.lines()]
  if processes.is_first():
    failed = f"{sum(failures)} of {len(failures)} do not work" if any(failures) else "all works"
    print(f"{failed}; {workdir or 'a temporary directory'} was written", flush=True)
  return int(any(failures))


def _fails(name: str, what: Callable[[], str], way_round: str) -> bool:
  """Runs a check, prints its line, and returns whether it failed in any process."""
  started, error, figure = time.perf_counter(), "", ""
  try:
    with contextlib.redirect_stdout(io.StringIO()):  # jobs print lines of their own
      figure = what()
  except Exception as failure:  # whatever a device or a store does, the next line is tried
    error = f"{type(failure).__name__}: {(str(failure).strip() or '?').splitlines()[0]}"
  errors = [other for other in processes.share(error) if other]
  if processes.is_first():
    text = f"{errors[0]}\n{'':7}{way_round}" if errors else figure
    seconds = time.perf_counter() - started
    print(f"{'FAILS' if errors else 'works':6} {name:34}{seconds:6.1f} s  {text}", flush=True)
  return bool(errors)


@dataclasses.dataclass(kw_only=True)
class _Checks:
  """The checks, in their order.

  Attributes:
    directory: Where the store is tried.
    local: A directory of this machine for what is uploaded.
  """

  directory: str
  local: str
  mesh: jax.sharding.Mesh
  pretraining: Pretraining
  storage_bytes: int

  def __post_init__(self):
    self.device = self.mesh.devices.flat[0]
    self.on_cpu = self.device.platform == "cpu"
    if not self.on_cpu:
      self.pretraining = self.pretraining.on_accelerators()

  def lines(self) -> Iterator[tuple[str, Callable[[], str], str]]:
    """Yields name, check and the way round it if it fails."""
    extra = "install the extra tpu, cuda12 or cuda13 for this machine, and unset JAX_PLATFORMS"
    yield "devices", self.devices, extra
    start = "start the same command on every host of one slice, with --coordinator=auto"
    yield "collectives", self.collectives, start
    for dtype in ("float32", "bfloat16"):
      for keep in (1.0, 0.9):
        name = f"fused attention, {dtype}{'' if keep == 1 else ', dropout'}"
        yield name, functools.partial(self.attention, dtype, keep), "use --attention=plain"
    exact, approximate = (functools.partial(self.search, target) for target in (None, 0.95))
    yield "search on the devices", exact, "use --searcher.kind=faiss or scann"
    yield "search, approximate", approximate, "leave target_recall at None"
    store = "see docs/object_store.md: roles of the hosts' account, region of the bucket"
    yield "checkpoint", self.checkpoint, store
    yield "generation", self.generation, store
    yield "trainer, builder, swap", self.training, "run the same command with --traceback"
    yield "train step", self.step, "lower batch_size, or profile it with --profile_steps"

  def devices(self) -> str:
    if self.on_cpu and (files := backend.accelerators()):
      raise CheckError(f"JAX computes on the CPU, but the machine has {files[0]}")
    memory = (self.device.memory_stats() or {}).get("bytes_limit")
    size = f", {memory / GIB:.1f} GiB each" if memory else ""
    kind = f"{self.device.device_kind} ({self.device.platform})"
    return f"{self.mesh.size} x {kind}{size}, processes: {jax.process_count()}"

  def collectives(self) -> str:
    """Sums, gathers and scatters whole numbers over all devices."""
    axes, size = tuple(self.mesh.axis_names), self.mesh.size
    rows = size * (1024 if self.on_cpu else max(1, (1 << 22) // size))

    def everywhere(part_n):
      gathered = jax.lax.all_gather(part_n[:1], axes, tiled=True)
      scattered = jax.lax.psum_scatter(part_n, axes, tiled=True)
      return jax.lax.psum(part_n, axes), gathered, scattered

    parts, whole = PartitionSpec(axes), PartitionSpec()
    over = {"mesh": self.mesh, "in_specs": parts, "out_specs": (whole, whole, parts)}
    program = jax.jit(jax.shard_map(everywhere, check_vma=False, **over))
    values = np.repeat(np.arange(1, size + 1, dtype=np.float32), rows)
    placed = jax.make_array_from_callback(
      values.shape, NamedSharding(self.mesh, parts), lambda index: values[index]
    )
    total = size * (size + 1) / 2
    wanted = {"sum": total, "gathered": np.arange(1, size + 1), "scattered": total}
    for found, (name, expected) in zip(program(placed), wanted.items(), strict=True):
      own = np.asarray(found.addressable_shards[0].data)
      if not np.array_equal(own, np.broadcast_to(expected, own.shape)):
        raise CheckError(f"{name} over {size} devices is wrong")
    seconds = _seconds(lambda: program(placed))
    return f"right on {size} devices; {rows * 4 / 2**20:.3g} MiB a device in {seconds * 1e3:.3g} ms"

  def attention(self, dtype: str, keep: float) -> str:
    """Compares the kernel and its gradients with plain attention on a device."""
    bert, emulated = self.pretraining.model.knowledge_augmented_encoder, "; emulated, not on a TPU"
    shapes = [(12, 2, 8)]
    if self.device.platform == "tpu":
      lengths = self.pretraining.data.query_length, self.pretraining.retrieval.joint_length
      heads, emulated = bert.num_heads, ""
      shapes = [
        (n, heads, bert.hidden_size // heads) for n in lengths if n <= fused_attention.LONGEST
      ]
    worst = max(attention_error(4, *shape, dtype=dtype, keep=keep) for shape in shapes)
    # Rounded factors, weights and results. Accelerators round the factors of float32 as well.
    limit = 8 * 2**-8 if dtype == "bfloat16" or not self.on_cpu else 64 * 2**-23
    if not worst <= limit:
      raise CheckError(f"it differs from plain attention by {worst:.2g}, more than {limit:.2g}")
    return f"within {worst:.2g} of plain attention, of {limit:.2g} allowed{emulated}"

  def search(self, recall_target: float | None) -> str:
    """Compares the search on the devices with brute force in numpy."""
    random, count = np.random.default_rng(0), 20_000 if self.on_cpu else 1_000_000
    passages_NxE = random.standard_normal((count, 128), np.float32)
    queries_BxE = random.standard_normal((64, 128), np.float32)
    index = device_searcher.DeviceSearcher(
      passages_NxE, mesh=self.mesh, recall_target=recall_target
    )
    right = np.argsort(-(queries_BxE @ passages_NxE.T), axis=1, kind="stable")[:, :10]
    found = index.search(queries_BxE, 10).ids_BxK
    recall = searcher.recall_at_k(found, right)
    if recall < (least := 0.999 if recall_target is None else recall_target - 0.05):
      raise CheckError(f"recall@10 is {recall:.3f}, below {least:.3g}")
    if (best := np.mean(found[:, 0] == right[:, 0])) < least:
      raise CheckError(
        f"the best passage is found for {best:.3f} of the queries, below {least:.3g}"
      )
    seconds = _seconds(lambda: index.search(queries_BxE, 10).ids_BxK)
    return f"recall@10 {recall:.3f} of {count:,} passages; {64 / seconds:.4g} queries/s"

  def checkpoint(self) -> str:
    """Writes a checkpoint with Orbax, and reads it."""
    sharding, noise_NxE = partitioning.sharding(self.mesh), self._noise()
    state = {"params": jax.device_put(noise_NxE, sharding)}
    abstract = {"params": jax.ShapeDtypeStruct(noise_NxE.shape, jnp.float32, sharding=sharding)}
    started = time.perf_counter()
    directory = os.path.join(self.directory, "checkpoints")
    with orbax_files.Checkpointer(directory) as checkpointer:
      checkpointer.save(1, state, input={}, metadata={"run": "check"})
      checkpointer.wait()
      written = time.perf_counter()
      restored = checkpointer.restore(abstract)
    found = [] if restored is None else [np.asarray(restored.state["params"])]
    return self._throughput(written - started, time.perf_counter() - written, found)

  def generation(self) -> str:
    """Publishes a generation of an index, and reads it with its digests."""
    noise_NxE, root = self._noise(), os.path.join(self.directory, "generations")
    (count, size), index = noise_NxE.shape, jax.process_index()
    num_shards = jax.process_count()
    config = searcher.SearcherConfig(kind="exact", num_shards=num_shards).for_corpus(count)
    part = searcher.own_part(count, num_shards=num_shards, index=index, count=num_shards)
    manifest = generations.Manifest(
      training_step=0,
      parameters_digest="",
      corpus_fingerprint="",
      vocabulary_digest="",
      num_passages=count,
      embedding_size=size,
      dtype="float32",
      searcher=dataclasses.asdict(config),
    )
    started = time.perf_counter()
    shards = assembly.build_shards(noise_NxE[part.rows], config=config, part=part)
    generations.publish(root, 0, shards, manifest=manifest, keep=1)
    written = time.perf_counter()
    read = generations.restore_each(root, 0, range(num_shards))
    found = [shard["embeddings"] for shard in read]
    return self._throughput(written - started, time.perf_counter() - written, found)

  def _noise(self) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((self.storage_bytes // 512, 128), np.float32)

  def _throughput(self, writing: float, reading: float, found: list[np.ndarray]) -> str:
    if not found or not np.array_equal(np.concatenate(found), self._noise()):
      raise CheckError("what is read is not what was written")
    size = self.storage_bytes / 2**20
    return f"written {size / writing:.4g} MiB/s, read {size / reading:.4g} MiB/s ({size:.0f} MiB)"

  def training(self) -> str:
    """Trains and builds by turns, because a TPU opens for one process alone."""
    path = functools.partial(os.path.join, self.directory)
    if processes.is_first():
      self._prepare_corpora()
    processes.share(None)
    places = {"passages": path("passages"), "index": path("index")}
    tiny, saved = self._tiny(), path("run", "checkpoints")
    train = functools.partial(pretrain, workdir=path("run"), corpus=path("training"), **places)
    build = functools.partial(build_index, checkpoints=saved, **places)
    for num_steps in (0, _EVERY):
      train(pretraining=tiny.with_steps(num_steps))
      build(builder=BuilderConfig(keep=2))
    train(pretraining=tiny.with_steps(2 * _EVERY))
    found = orbax_files.read_metadata(orbax_files.resolve(saved))["generation"]
    if found != 1:
      raise CheckError(f"the training ends with generation {found} instead of 1")
    return f"{2 * _EVERY} steps of batch {tiny.data.batch_size}, generation 1 taken up"

  def _tiny(self) -> Pretraining:
    return _with_batch(_TINY, -(-_TINY.data.batch_size // self.mesh.size) * self.mesh.size)

  def _prepare_corpora(self) -> None:
    local = functools.partial(os.path.join, self.local)
    make_almanac(output=local("almanac"), num_invented_entities=60, num_edits=6)
    for source, name in (("training", "training"), ("documents", "passages")):
      remote = object_store.is_remote(self.directory)
      made = local(name) if remote else os.path.join(self.directory, name)
      prepare_corpus(
        input=local("almanac", f"{source}.jsonl"),
        output=made,
        vocabulary=local("vocabulary"),
        learning=LearningConfig(vocab_size=_BERT.vocab_size),
        chunking=ChunkingConfig(max_passage_length=_TINY.retrieval.passage_length),
        num_shards=jax.process_count(),
      )
      if remote:
        object_store.upload(made, os.path.join(self.directory, name))

  def step(self) -> str:
    """Times the training step with the largest batch that fits, against the roofline."""
    training, size = (self._tiny() if self.on_cpu else self.pretraining), self.mesh.size
    batch_size = max(size, training.data.batch_size // size * size)
    while True:
      try:
        seconds, least = self._step_seconds(_with_batch(training, batch_size))
        break
      except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) or batch_size == size:
          raise
      batch_size = max(1, batch_size // size // 2) * size
    figure = f"batch {batch_size}: {seconds:.3g} s"
    if least is None:
      return f"{figure}; no published peak of this device is known"
    if not self.on_cpu and least < _SLOW * seconds:
      raise CheckError(f"{figure}, only {least / seconds:.0%} of the roofline")
    return f"{figure}, {least / seconds:.0%} of the roofline"

  def _step_seconds(self, training: Pretraining) -> tuple[float, float | None]:
    """Returns the seconds of a step, and the least that its devices' peak allows."""
    program = training.program(self.mesh)
    ones = lambda: jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), training.abstract_batch())  # noqa: E731
    batch = jax.jit(ones, out_shardings=program.batch_sharding)()
    state, seed = program.new_state(), np.int32(0)
    compiled = program.jitted_step.lower(state, batch, seed).compile()

    def step():
      nonlocal state
      state, metrics = compiled(state, batch, seed)
      return metrics

    seconds = _seconds(step)
    if not np.isfinite(loss := float(step()["loss/total"])):
      raise CheckError(f"the loss is {loss}")
    peak = peak_of(self.device, num_devices=self.mesh.size)
    cost, parts = compiled.cost_analysis() or {}, training.mesh.accumulate_steps
    flops, moved = (cost.get(name, 0.0) * parts for name in ("flops", "bytes accessed"))
    return seconds, peak and peak.seconds(flops=flops, bytes_accessed=moved)


def attention_error(
  sequences: int, length: int, heads: int, head_size: int, *, dtype: str, keep: float
) -> float:
  """Returns how far the kernel and its gradients are from plain attention, in parts of the largest.

  A factor that all values have in common counts `_FACTOR_WEIGHT` times.
  Plain attention multiplies in float32 exactly, from the same rounded inputs.
  """
  random = np.random.default_rng(0)
  parts = random.standard_normal((3, sequences * length, heads, head_size), np.float32)
  slope = random.standard_normal((sequences, length, heads * head_size), np.float32)
  parts, slope = (np.asarray(jnp.asarray(x, dtype), np.float32) for x in (parts, slope))
  mask_FxL = np.arange(length) < np.linspace(1, length, sequences).astype(int)[:, None]
  words_FxHx2 = random.integers(0, 2**32, (sequences, heads, 2), np.uint32)
  bias_1x3D = np.zeros((1, 3 * heads * head_size), np.float32)

  def fused(parts):
    packed = fused_attention.packed(*parts).reshape(sequences, length, -1)
    context = fused_attention.fused_attention(packed, bias_1x3D, mask_FxL, words_FxHx2, keep, dtype)
    return context.astype(jnp.float32)

  def plain(parts):
    query, key, value = parts.reshape(3, sequences, length, heads, head_size)
    exact = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    logits_FxHxLxL = exact("FQHG,FLHG->FHQL", query, key) * head_size**-0.5
    logits_FxHxLxL = jnp.where(mask_FxL[:, None, None], logits_FxHxLxL, -jnp.inf)
    kept_FxHxLxL = fused_attention.kept(jnp.asarray(words_FxHx2), length=length, keep=keep)
    probs_FxHxLxL = jax.nn.softmax(logits_FxHxLxL) * kept_FxHxLxL / keep
    return exact("FHQL,FLHG->FQHG", probs_FxHxLxL, value).reshape(sequences, length, -1)

  mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
  placed = jax.device_put((parts, slope), partitioning.sharding(mesh))

  def value_and_gradient(attention):
    def both(parts, slope):
      value, backward = jax.vjp(attention, parts)
      return value, backward(slope)[0]

    return jax.tree.map(np.asarray, jax.jit(partitioning.on_mesh(mesh, both))(*placed))

  both = value_and_gradient(fused), value_and_gradient(plain)
  pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(*both, strict=True)]
  largest = max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)
  # Roundings cancel in the sum, so a common factor stands out.
  factor = max(abs(np.vdot(a, b) / np.vdot(b, b) - 1) for a, b in pairs)
  return float(max(largest, _FACTOR_WEIGHT * factor))


def _with_batch(pretraining: Pretraining, batch_size: int) -> Pretraining:
  data = dataclasses.replace(pretraining.data, batch_size=batch_size)
  return dataclasses.replace(pretraining, data=data)


def _seconds(call: Callable, *, repetitions: int = 5) -> float:
  """Returns the median time of a call and its result; the first one warms up."""
  jax.block_until_ready(call())
  seconds = []
  for _ in range(repetitions):
    start = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds)
