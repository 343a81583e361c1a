"""Compiles programs for devices that this machine may lack."""

import contextlib
import dataclasses
import importlib.util
import os
import re
import time
from collections.abc import Sequence

import jax
import psutil
from absl import logging

from realm_jax.planning import chips
from realm_jax.planning.collectives import Collective, collectives
from realm_jax.planning.roofline import Work

# The setting that JAX has up to 0.10, then that of later releases.
_LITTLE_EFFORT = {"jax_exec_time_optimization_effort": -1.0, "jax_optimization_level": "O1"}
# libtpu's setting that makes a v4 chip one device.
_ONE_DEVICE_PER_CHIP = {"v4": {"chip_config_name": "megacore"}}
_LIBTPU_NAMES = {"v7x": "tpu7x"}
_NEEDED = re.compile(r"\(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledProgram:
  """The compiler's analysis of a program, per device.

  Attributes:
    result_bytes: Bytes of results that do not reuse the buffer of an argument.
    seconds: Duration of the compilation.
    refusal: Why the program cannot be compiled for this device, or None. If set, the other figures
      are 0.
  """

  name: str
  argument_bytes: int = 0
  temporary_bytes: int = 0
  result_bytes: int = 0
  code_bytes: int = 0
  work: Work = Work(flops=0.0, memory_bytes=0.0)
  collectives: Sequence[Collective] = ()
  seconds: float = 0.0
  refusal: str | None = None

  @property
  def memory_bytes(self) -> int:
    """Bytes of device memory in use while it runs."""
    return self.argument_bytes + self.temporary_bytes + self.result_bytes + self.code_bytes


def open_topology(topology: chips.Topology) -> tuple[list[jax.Device], chips.Chip]:
  """Returns the devices of a topology, for compilation only, and the figures of their chip.

  For `cpu`, the devices are this machine's. To get several CPU devices, call this before JAX has
  started. They also stand for GPUs, for which nothing can be compiled on another machine.

  Raises:
    ValueError: If libtpu is missing or knows no such topology, or JAX has fewer CPU devices.
  """
  with contextlib.suppress(RuntimeError):  # JAX has started already
    # A plan does not use this machine's accelerators.
    jax.config.update("jax_platforms", "cpu")
  if not topology.is_cloud_tpu:
    devices = _cpu_devices(topology)
    return devices, chips.CHIPS.get(topology.kind) or _this_machine(topology)
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError(
      f"topology {topology.name} needs libtpu: pip install -e '.[tpu]' in the checkout"
    )
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
    kind, _, sizes = topology.name.partition(":")
    description = topologies.get_topology_desc(
      platform="tpu",
      topology_name=f"{_LIBTPU_NAMES.get(kind, kind)}:{sizes}",
      **_ONE_DEVICE_PER_CHIP.get(kind, {}),
    )
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f"libtpu knows no topology {topology.name}: {_first_line(error)}") from error
  return list(description.devices), chips.CHIPS[topology.kind]


def compile_program(name: str, program, *arguments, num_devices: int) -> CompiledProgram:
  """Compiles a jitted program for the devices of its arguments' shardings.

  Args:
    name: Identifies the program in messages.
    program: A function from `jax.jit`.
    *arguments: Shapes with shardings.
  """
  started = time.perf_counter()
  try:
    with _little_effort():
      compiled = program.lower(*arguments).compile()
  except jax.errors.JaxRuntimeError as error:
    return CompiledProgram(name=name, refusal=_refusal(error))
  seconds = time.perf_counter() - started
  logging.info("%s compiled in %.0f s", name, seconds)
  memory = compiled.memory_analysis()
  cost = compiled.cost_analysis() or {}
  sent = collectives(compiled.as_text(), num_devices=num_devices)
  return CompiledProgram(
    name=name,
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    result_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
    code_bytes=memory.generated_code_size_in_bytes,
    work=Work(
      flops=cost.get("flops", 0.0),
      memory_bytes=cost.get("bytes accessed", 0.0),
      link_bytes=sum(collective.link_bytes for collective in sent),
    ),
    collectives=sent,
    seconds=seconds,
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


def _cpu_devices(topology: chips.Topology) -> list[jax.Device]:
  with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", topology.num_devices)
  devices = jax.devices("cpu")
  if len(devices) < topology.num_devices:
    raise ValueError(
      f"topology {topology.name}: JAX has already started with {len(devices)} CPU devices; ask for "
      "at most that many"
    )
  return devices[: topology.num_devices]


def _this_machine(topology: chips.Topology) -> chips.Chip:
  return chips.this_machine(
    memory_bytes=psutil.virtual_memory().total,
    cores=len(os.sched_getaffinity(0)),
    num_devices=topology.num_devices,
  )


def _refusal(error: Exception) -> str:
  figures = _NEEDED.search(str(error))
  if not figures:
    return _first_line(error)
  needed, available = figures.groups()
  return f"the compiler needs {needed} GiB besides the arguments, but only {available} GiB are free"


def _first_line(error: Exception) -> str:
  return str(error).strip().splitlines()[0]
