"""Compiles programs for devices that need not be there."""

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

# How libtpu calls what the chip table calls otherwise: a chip of v4 and v5p is one device.
_ONE_DEVICE_PER_CHIP = {"v4": {"chip_config_name": "megacore"}}
_NEEDED = re.compile(r"\(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledProgram:
  """What the compiler says of a program, for one device.

  Attributes:
    name: of the program.
    argument_bytes: of what it is given.
    temporary_bytes: that it needs beside that.
    result_bytes: of results that do not take the place of an argument.
    code_bytes: of the program itself.
    work: arithmetic and traffic.
    collectives: what devices send to each other.
    seconds: that compilation took.
    refusal: why it cannot be compiled for this device, or None; the figures are 0 then.
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
    """Bytes of the device's memory that are taken while it runs."""
    return self.argument_bytes + self.temporary_bytes + self.result_bytes + self.code_bytes


def open_topology(topology: chips.Topology) -> tuple[list[jax.Device], chips.Chip]:
  """Returns the devices of a topology, which cannot run anything, and what each of them offers.

  For `cpu` they are this machine's. Must be called before JAX has started where the process is to
  have several CPU devices.

  Raises:
    ValueError: if libtpu is missing, knows no such topology, or JAX has fewer CPU devices.
  """
  with contextlib.suppress(RuntimeError):  # JAX is up already
    # An accelerator of this machine is none of a plan's business.
    jax.config.update("jax_platforms", "cpu")
  if topology.kind == "cpu":
    return _cpu_devices(topology)
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError(
      f"topology {topology.name} needs libtpu: pip install -e '.[tpu]' in the checkout"
    )
  # libtpu would look for the machine that it runs on, for minutes, and complain of finding none.
  os.environ["TPU_SKIP_MDS_QUERY"] = "1"
  os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # it is held by no device, two plans may run
  os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v3-8")
  os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
  os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
  from jax.experimental import topologies

  try:
    description = topologies.get_topology_desc(
      platform="tpu",
      topology_name=topology.name,
      **_ONE_DEVICE_PER_CHIP.get(topology.kind, {}),
    )
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f"libtpu knows no topology {topology.name}: {_first_line(error)}") from error
  return list(description.devices), chips.CHIPS[topology.kind]


def compile_program(name: str, program, *arguments, num_devices: int) -> CompiledProgram:
  """Compiles a jitted program for the devices of its arguments' shardings.

  Args:
    name: for messages.
    program: from `jax.jit`.
    *arguments: shapes with shardings.
    num_devices: of the mesh.
  """
  started = time.perf_counter()
  try:
    with _little_effort():
      compiled = program.lower(*arguments).compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
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
  """Has the compiler write slower code, of the same memory, in an eighth of the time."""
  before = jax.config.jax_exec_time_optimization_effort
  jax.config.update("jax_exec_time_optimization_effort", -1.0)
  try:
    yield
  finally:
    jax.config.update("jax_exec_time_optimization_effort", before)


def _cpu_devices(topology: chips.Topology) -> tuple[list[jax.Device], chips.Chip]:
  with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", topology.num_devices)
  devices = jax.devices("cpu")
  if len(devices) < topology.num_devices:
    raise ValueError(
      f"topology {topology.name}: JAX has started with {len(devices)} CPU devices already; ask for "
      "no more than these"
    )
  chip = chips.this_machine(
    memory_bytes=psutil.virtual_memory().total,
    cores=len(os.sched_getaffinity(0)),
    num_devices=topology.num_devices,
  )
  return devices[: topology.num_devices], chip


def _refusal(error: Exception) -> str:
  figures = _NEEDED.search(str(error))
  if not figures:
    return _first_line(error)
  needed, available = figures.groups()
  return f"the compiler needs {needed} GiB beside the arguments, {available} GiB are there"


def _first_line(error: Exception) -> str:
  return str(error).strip().splitlines()[0]
