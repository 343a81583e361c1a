"""Compiles programs for devices that this machine may lack, and tells what they need of them.

Published peaks give the least time that a program takes on a device (its roofline).
"""

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import psutil
from absl import logging

from realm_jax.foundations import extras, system

GIB = 2**30

# Of a device of each kind, GiB of memory and the part that the compiler reserves. A device is what
# JAX counts as one: a core of TPU v2, v3 and v7x, a chip of the others.
_TPUS = {
  "v2": (8, 0.5),
  "v3": (16, 0.5),
  "v4": (32, 0.5),
  "v5e": (16, 0.25),
  "v5p": (95, 0.25),
  "v6e": (32, 0.75),
  "v7x": (96, 1.25),
}
# FLOP/s in bfloat16 and bytes per second of a device, as published, by JAX's name for it.
_PEAKS = {  # the longer name first
  "TPU v2": (22.5e12, 350e9),
  "TPU v3": (61.5e12, 450e9),
  "TPU v4": (275e12, 1200e9),
  "TPU v5 lite": (197e12, 819e9),
  "TPU v5": (459e12, 2765e9),
  "TPU v6 lite": (918e12, 1640e9),
  "TPU7x": (1153.5e12, 3690e9),
  "H200": (989e12, 4800e9),
  "H100": (989e12, 3350e9),
  "A100-SXM4-80GB": (312e12, 2039e9),
  "A100": (312e12, 1555e9),
  "L4": (121e12, 300e9),
}
# libtpu's setting that makes a v4 chip one device.
_ONE_DEVICE_PER_CHIP = {"v4": {"chip_config_name": "megacore"}}
_LIBTPU_NAMES = {"v7x": "tpu7x"}
# The setting that JAX has up to 0.10, then that of later releases.
_LITTLE_EFFORT = {"jax_exec_time_optimization_effort": -1.0, "jax_optimization_level": "O1"}


class Peak(NamedTuple):
  """The peak of one device."""

  flops: float
  memory_bandwidth: float

  def seconds(self, *, flops: float, bytes_accessed: float) -> float:
    """Returns the least time of a program: it computes and moves bytes at the same time."""
    return max(flops / self.flops, bytes_accessed / self.memory_bandwidth)


def peak_of(device: jax.Device, *, num_devices: int) -> Peak | None:
  """Returns the published peak of a device, or None if it is not in the table.

  Args:
    device: A device, present or only compiled for.
    num_devices: The number of CPU devices that share the machine.
  """
  if device.platform == "cpu":
    # Orders of magnitude: per core sixteen float32 multiply-adds a cycle at 2.5 GHz, and 20 GB/s.
    cores = system.num_cores()
    return Peak(cores * 80e9 / num_devices, 20e9 / num_devices)
  kind = device.device_kind
  return next((Peak(*peak) for name, peak in _PEAKS.items() if name in kind), None)


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
    flops: Operations. The compiler counts the body of a loop once.
    bytes_accessed: Bytes read and written by all operations, counted likewise.
    refusal: Why the program cannot be compiled for this device, or None. If set, the other figures
      are 0.
  """

  argument_bytes: int = 0
  temporary_bytes: int = 0
  result_bytes: int = 0
  code_bytes: int = 0
  flops: float = 0.0
  bytes_accessed: float = 0.0
  refusal: str | None = None

  @property
  def memory_bytes(self) -> int:
    """Bytes of device memory in use while it runs."""
    return self.argument_bytes + self.temporary_bytes + self.result_bytes + self.code_bytes


def open_topology(name: str) -> Topology:
  """Returns the devices of a topology: `v3:8x8` and other TPUs, `cpu:8`, or `local`.

  `local` has the devices of this machine, GPUs included, for which nothing can be compiled on
  another one. To get several CPU devices, call this before JAX has started.

  Raises:
    ValueError: If the name is unknown, libtpu is missing or knows no such topology, or JAX has
      fewer CPU devices.
  """
  kind, _, sizes = name.partition(":")
  if name == "local":
    return Topology(name=name, devices=jax.devices(), usable_bytes=_memory_here(jax.devices()))
  known = kind == "cpu" or kind in _TPUS
  if not known or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){0,2}", sizes):
    raise ValueError(
      f"topology {name!r}; write local, or KIND:SIZES such as v3:8x8, v4:4x4x4 or cpu:8, where KIND"
      f" is one of {', '.join([*_TPUS, 'cpu'])}"
    )
  with contextlib.suppress(RuntimeError):  # JAX has started already
    # A plan does not use this machine's accelerators.
    jax.config.update("jax_platforms", "cpu")
  if kind == "cpu":
    devices = _cpu_devices(name, math.prod(map(int, sizes.split("x"))))
    return Topology(name=name, devices=devices, usable_bytes=_memory_here(devices))
  memory, reserved = _TPUS[kind]
  devices = _tpu_devices(name, kind=kind, sizes=sizes)
  return Topology(name=name, devices=devices, usable_bytes=int((memory - reserved) * GIB))


def compile_program(name: str, program, *arguments) -> CompiledProgram:
  """Compiles a jitted program for the devices of its arguments' shardings."""
  # A compiler that aborts takes this process with it.
  logging.info("compiling the %s", name)
  try:
    with _little_effort():
      compiled = program.lower(*arguments).compile()
  except jax.errors.JaxRuntimeError as error:
    return CompiledProgram(refusal=_first_line(error))
  memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
  return CompiledProgram(
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    result_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
    code_bytes=memory.generated_code_size_in_bytes,
    flops=cost.get("flops", 0.0),
    bytes_accessed=cost.get("bytes accessed", 0.0),
  )


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


def _tpu_devices(name: str, *, kind: str, sizes: str) -> Sequence[jax.Device]:
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError(f"topology {name} needs libtpu: {extras.how_to_install('tpu')}")
  # Otherwise libtpu would search for a TPU for minutes, and report that there is none.
  os.environ["TPU_SKIP_MDS_QUERY"] = "1"
  os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no device is in use, so two plans may run
  os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v3-8")
  os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
  os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
  from jax.experimental import topologies

  # A program for devices that are not there cannot be read back.
  jax.config.update("jax_enable_compilation_cache", False)
  try:
    description = topologies.get_topology_desc(
      platform="tpu",
      topology_name=f"{_LIBTPU_NAMES.get(kind, kind)}:{sizes}",
      **_ONE_DEVICE_PER_CHIP.get(kind, {}),
    )
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f"libtpu knows no topology {name}: {_first_line(error)}") from error
  return list(description.devices)


def _first_line(error: Exception) -> str:
  return str(error).strip().splitlines()[0]
