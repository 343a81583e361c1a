"""Compiles programs for devices that this machine may lack, and tells what they need of them."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Sequence

import jax
import psutil
from absl import logging
from jax.experimental import topologies

from realm_jax.foundations import extras
from realm_jax.launching import device_shares
from realm_jax.training.machines import gpu_programs
from realm_jax.training.machines.accelerators import GIB, GPUS, TPUS

# libtpu's setting that makes a v4 chip one device.
_ONE_DEVICE_PER_CHIP = {"v4": {"chip_config_name": "megacore"}}
_LIBTPU_NAMES = {"v7x": "tpu7x"}
# XLA starts threads for each CPU device, and more than a thousand are no machine's.
_MOST_CPUS_OR_GPUS = 1024
_GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# Kernels cannot be timed, and their code is not needed.
GPU_OPTIONS = {"xla_gpu_autotune_level": "0", "xla_backend_optimization_level": "0"}
# Of some products XLA finds no kernel without timing, except in cuBLAS.
_ONLY_CUBLAS = {**GPU_OPTIONS, "xla_gpu_enable_triton_gemm": "False"}
# The setting that JAX has up to 0.10, then that of later releases.
_LITTLE_EFFORT = {"jax_exec_time_optimization_effort": -1.0, "jax_optimization_level": "O1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
  """The devices that programs are compiled for.

  Attributes:
    name: Such as `v3:8x8`, `cpu:8` or `local`.
    usable_bytes: Memory of a device that programs may use.
  """

  name: str
  devices: Sequence[jax.Device]
  usable_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledProgram:
  """The compiler's analysis of a program, per device.

  Attributes:
    result_bytes: Bytes of results that do not reuse the buffer of an argument.
    refusal: Why the program cannot be compiled for this device, or None. If set, the other figures
      are 0.
  """

  argument_bytes: int = 0
  temporary_bytes: int = 0
  result_bytes: int = 0
  code_bytes: int = 0
  counts: gpu_programs.Counts = gpu_programs.Counts()
  refusal: str | None = None


def open_topology(name: str) -> Topology:
  """Returns the devices of a topology: `v3:8x8` and other TPUs, `h100:1`, `cpu:8`, or `local`.

  `local` has the devices of this machine. To get several CPU devices, or GPUs, call this before JAX
  has started.

  Raises:
    ValueError: If the name is unknown, what compiles for the devices is missing or knows no such
      topology, or JAX has fewer CPU devices.
  """
  kind, _, sizes = name.partition(":")
  if name == "local":
    return Topology(name=name, devices=jax.devices(), usable_bytes=_memory_here(jax.devices()))
  known, most = kind == "cpu" or kind in TPUS or kind in GPUS, 0 if kind in GPUS else 2
  if not known or not re.fullmatch(rf"[1-9]\d*(x[1-9]\d*){{0,{most}}}", sizes):
    raise ValueError(
      f"topology {name!r}; write local, or KIND:SIZES such as v3:8x8, v4:4x4x4, h100:1 or cpu:8, "
      f"where KIND is one of {', '.join([*TPUS, *GPUS, 'cpu'])}"
    )
  if kind not in TPUS and (count := math.prod(map(int, sizes.split("x")))) > _MOST_CPUS_OR_GPUS:
    raise ValueError(
      f"topology {name} has {count} devices; of {kind}, plan for at most {_MOST_CPUS_OR_GPUS}"
    )
  with contextlib.suppress(RuntimeError):  # JAX has started already
    # A plan does not use this machine's accelerators.
    jax.config.update("jax_platforms", "cpu")
  if kind == "cpu":
    devices = _cpu_devices(name, math.prod(map(int, sizes.split("x"))))
    return Topology(name=name, devices=devices, usable_bytes=_memory_here(devices))
  # A program for devices that are not there cannot be read back.
  jax.config.update("jax_enable_compilation_cache", False)
  if kind in GPUS:
    usable = GPUS[kind].memory_gb * 1e9 * _memory_share()
    devices = _gpu_devices(name, kind=kind, count=sizes)
  else:
    usable = (TPUS[kind].memory_gib - TPUS[kind].reserved_gib) * GIB
    devices = _tpu_devices(name, kind=kind, sizes=sizes)
  return Topology(name=name, devices=devices, usable_bytes=int(usable))


def compile_program(name: str, program, *arguments, repeats: int = 1) -> CompiledProgram:
  """Compiles a jitted program for the devices of its arguments' shardings.

  Args:
    repeats: How often the program's outer loop runs; see `counts`.
  """
  # A compiler that aborts takes this process with it.
  logging.info("compiling the %s", name)
  device, refusal, compiled = next(_devices_of(arguments)), "", None
  of_gpu = device.platform == "gpu"
  for options in (GPU_OPTIONS, _ONLY_CUBLAS) if of_gpu else (None,):
    try:
      with contextlib.nullcontext() if of_gpu else _little_effort():
        compiled = program.lower(*arguments).compile(options)
      break
    except jax.errors.JaxRuntimeError as error:
      refusal = _first_line(error)
  if compiled is None:
    return CompiledProgram(refusal=refusal)
  memory = compiled.memory_analysis()
  return CompiledProgram(
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    result_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
    code_bytes=memory.generated_code_size_in_bytes,
    counts=counts(compiled, device=device, repeats=repeats),
  )


def counts(compiled, *, device: jax.Device, repeats: int) -> gpu_programs.Counts:
  """Returns what a device does in one run of a compiled program.

  Args:
    repeats: How often the program's outer loop runs; but for GPUs, XLA counts bodies of loops once.
  """
  if device.platform == "gpu":
    return gpu_programs.count(compiled.as_text())
  cost = compiled.cost_analysis() or {}
  once = gpu_programs.Counts(0, cost.get("flops", 0.0), cost.get("bytes accessed", 0.0))
  return once * repeats


def _devices_of(arguments) -> Iterator[jax.Device]:
  for leaf in jax.tree.leaves(arguments):
    if isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is not None:
      yield from leaf.sharding.device_set


@contextlib.contextmanager
def _little_effort():
  """Makes compilation eight times as fast, for slower code that uses the same memory."""
  name, little = next(item for item in _LITTLE_EFFORT.items() if item[0] in jax.config.values)
  before = jax.config.values[name]
  jax.config.update(name, little)
  try:
    yield
  finally:
    jax.config.update(name, before)


def _memory_here(devices: Sequence[jax.Device]) -> int:
  stats = devices[0].memory_stats() or {}
  # CPU devices share the machine's memory.
  return stats.get("bytes_limit") or psutil.virtual_memory().total // len(devices)


def _cpu_devices(name: str, count: int) -> Sequence[jax.Device]:
  with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", count)
  devices = jax.devices("cpu")
  if len(devices) < count:
    raise ValueError(
      f"topology {name}: JAX has already started with {len(devices)} CPU devices; ask for at most "
      "that many"
    )
  return devices[:count]


def _memory_share() -> float:
  """Returns the share of a GPU's memory that JAX takes; more than all is memory of the host."""
  return min(device_shares.memory_fraction() or 0.75, 1.0)


def _gpu_devices(name: str, *, kind: str, count: str) -> Sequence[jax.Device]:
  if not any(map(importlib.util.find_spec, _GPU_PLUGINS)):
    raise ValueError(f"topology {name} needs jax[cuda12]: {extras.how_to_install('cuda12')}")
  # Otherwise the plugin would look for a GPU, and give up.
  os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
  config = GPUS[kind].target_config
  return _described(name, platform="cuda", target_config=config, topology=f"1x1x{count}")


def _tpu_devices(name: str, *, kind: str, sizes: str) -> Sequence[jax.Device]:
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError(f"topology {name} needs libtpu: {extras.how_to_install('tpu')}")
  # Otherwise libtpu would search for a TPU for minutes, and report that there is none.
  os.environ["TPU_SKIP_MDS_QUERY"] = "1"
  os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no device is in use, so two plans may run
  os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v3-8")
  os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
  os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
  topology = f"{_LIBTPU_NAMES.get(kind, kind)}:{sizes}"
  settings = _ONE_DEVICE_PER_CHIP.get(kind, {})
  return _described(name, platform="tpu", topology_name=topology, **settings)


def _described(name: str, **described) -> Sequence[jax.Device]:
  try:
    return list(topologies.get_topology_desc(**described).devices)
  except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
    raise ValueError(f"the compiler knows no topology {name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
  return str(error).strip().splitlines()[0]
