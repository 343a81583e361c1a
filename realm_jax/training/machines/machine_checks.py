"""What `realm check` tries: devices, kernels and storage, and one step of a training."""

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.checkpoints import orbax_files
from realm_jax.devices import backend, partitioning
from realm_jax.models import attention_kernels, fused_attention
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.machines.accelerators import GIB, peak_of
from realm_jax.training.machines.ahead_of_time import counts
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining

_BERT = BertConfig(
  vocab_size=1024,
  hidden_size=16,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=48,
  dropout_rate=0.0,
)
_TINY = Pretraining(
  data=MaskedQueryData(batch_size=8, query_length=32, max_masks=3),
  model=ModelConfig(
    dual_encoder=DualEncoderConfig(bert=_BERT, projection_size=8), knowledge_augmented_encoder=_BERT
  ),
  retrieval=RetrievalConfig(num_passages=3, passage_length=32, joint_length=48),
)
_FACTOR_WEIGHT = 8  # so that 1 % is more than bfloat16 may be off
_SLOW = 0.1  # of the roofline


class CheckError(RuntimeError):
  """A result is wrong."""


@dataclasses.dataclass(kw_only=True)
class MachineChecks:
  """The checks of a machine, in their order.

  Attributes:
    directory: Where the store is tried.
    pretraining: The training whose attention and step are tried; on CPUs the step is a tiny one's.
    storage_bytes: Size of the arrays that are written and read.
  """

  directory: str
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
    kinds = [(dtype, keep) for dtype in ("float32", "bfloat16") for keep in (1.0, 0.9)]
    for dtype, keep in [("bfloat16", 1.0)] if self.device.platform == "gpu" else kinds:
      name = f"fused attention, {dtype}{'' if keep == 1 else ', dropout'}"
      yield name, functools.partial(self.attention, dtype, keep), "use --attention=plain"
    store = "see docs/object_store.md: roles of the hosts' account, region of the bucket"
    yield "storage", self.storage, store
    yield "train step", self.step, "lower batch_size, or profile it with --profile_steps"

  def devices(self) -> str:
    if self.on_cpu and (files := backend.accelerators()):
      raise CheckError(f"JAX computes on the CPU, but the machine has {files[0]}")
    memory = (self.device.memory_stats() or {}).get("bytes_limit")
    size = f", {memory / GIB:.1f} GiB each" if memory else ""
    kind = f"{self.device.device_kind} ({self.device.platform})"
    return f"{self.mesh.size} x {kind}{size}, processes: {jax.process_count()}"

  def attention(self, dtype: str, keep: float) -> str:
    """Compares the kernel and its gradients with plain attention on a device."""
    bert, emulated = self.pretraining.model.knowledge_augmented_encoder, "; emulated, not on a TPU"
    shapes = [(12, 2, 8)]
    if not self.on_cpu:
      lengths = self.pretraining.data.query_length, self.pretraining.retrieval.joint_length
      kernel = partitioning.on_mesh(self.mesh, bert.attention_kernel)
      heads, emulated = bert.num_heads, ""
      fused = [n for n in lengths if kernel(n, deterministic=True) != "plain"]
      shapes = [(n, heads, bert.hidden_size // heads) for n in fused]
      if not shapes:
        return "no kernel: this training computes plain attention here"
    worst = max(attention_error(4, *shape, dtype=dtype, keep=keep) for shape in shapes)
    # Rounded factors, weights and results. Accelerators round the factors of float32 as well.
    limit = 8 * 2**-8 if dtype == "bfloat16" or not self.on_cpu else 64 * 2**-23
    if not worst <= limit:
      raise CheckError(f"it differs from plain attention by {worst:.2g}, more than {limit:.2g}")
    return f"within {worst:.2g} of plain attention, of {limit:.2g} allowed{emulated}"

  def storage(self) -> str:
    """Writes a checkpoint with Orbax, and reads it."""
    noise_NxE = np.random.default_rng(0).standard_normal(
      (self.storage_bytes // 512, 128), np.float32
    )
    sharding = partitioning.sharding(self.mesh)
    state = {"params": jax.device_put(noise_NxE, sharding)}
    abstract = {"params": jax.ShapeDtypeStruct(noise_NxE.shape, jnp.float32, sharding=sharding)}
    started = time.perf_counter()
    directory = os.path.join(self.directory, "checkpoints")
    with orbax_files.Checkpointer(directory) as checkpointer:
      checkpointer.save(1, state, input={}, metadata={"run": "check"})
      checkpointer.wait()
      written = time.perf_counter()
      restored = checkpointer.restore(abstract)
    read = time.perf_counter()
    if restored is None or not np.array_equal(restored.state["params"], noise_NxE):
      raise CheckError("what is read is not what was written")
    size = self.storage_bytes / 2**20
    speeds = (f"{size / seconds:.4g} MiB/s" for seconds in (written - started, read - written))
    return "written {}, read {} ({:.0f} MiB)".format(*speeds, size)

  def step(self) -> str:
    """Times the training step with the largest batch that fits, against the roofline."""
    training, size = (_TINY if self.on_cpu else self.pretraining), self.mesh.size
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
    counted = counts(compiled, device=self.device, repeats=training.mesh.accumulate_steps)
    least = peak and peak.seconds(counted)
    return seconds, least


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
    if jax.default_backend() == "gpu":
      query, key, value = parts.reshape(3, sequences, length, heads, head_size).astype(dtype)
      context = attention_kernels.by_lengths(query, key, value, jnp.asarray(mask_FxL))
      return context.reshape(sequences, length, -1).astype(jnp.float32)
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
      # Kernels may leave anything in the context of padding.
      real_FxLx1 = mask_FxL[:, :, None]
      value, backward = jax.vjp(lambda parts: jnp.where(real_FxLx1, attention(parts), 0), parts)
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
