"""Published figures of devices and their hosts, and the names of topologies.

A device is what JAX counts as one: a core of TPU v2, v3 and v7x, a chip of the others. The figures
are the manufacturers'.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

GIB = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
  """One kind of accelerator.

  Attributes:
    devices_per_chip: Devices that JAX counts per chip.
    memory_bytes: Memory of a device.
    reserved_bytes: Part of the memory that the compiler reserves.
    flops: Peak multiplications and additions per second of a device, in bfloat16.
    memory_bandwidth: Bytes per second between a device and its memory.
    link_bandwidth: Bytes per second that a device sends to its neighbours, over all links.
  """

  name: str
  devices_per_chip: int = 1
  memory_bytes: int
  reserved_bytes: int
  flops: float
  memory_bandwidth: float
  link_bandwidth: float
  chips_per_host: int
  host_memory_bytes: int
  host_cores: int

  @property
  def usable_bytes(self) -> int:
    return self.memory_bytes - self.reserved_bytes


# Devices per chip. Of a device: memory and the part that the compiler reserves (GiB), TFLOP/s in
# bfloat16, GB/s of memory and of links. Of a host, with its four chips: memory (GiB) and cores.
_TPUS = """
  v2   2   8  .5    22.5   350   62   300   96
  v3   2  16  .5    61.5   450   82   340   96
  v4   1  32  .5   275    1200  150   400  240
  v5e  1  16  .25  197     819  200   192  112
  v5p  1  95  .25  459    2765  600   448  208
  v6e  1  32  .75  918    1640  400   720  180
  v7x  2  96 1.25 1153.5  3690  300   960  224
"""


# GiB of memory, TFLOP/s in dense bfloat16, GB/s of memory and of links; GiB and cores of the host's
# share. "gpu" has the figures of an L4, which has the least of the cards of 24 GB.
_GPUS = """
  gpu   22.5  121   300   32   32   8
  a100  80    312  2039  600  170  12
  h100  80    989  3350  900  234  26
"""
# What `realm launch_local` leaves the trainer of the only GPU; JAX itself takes little more.
_SHARE_OF_A_GPU = 0.7


def _gpu(name: str, *figures: str) -> Chip:
  memory, flops, bandwidth, links, host_memory, cores = map(float, figures)
  return Chip(
    name=name,
    memory_bytes=int(memory * GIB),
    reserved_bytes=int(memory * GIB * (1 - _SHARE_OF_A_GPU)),
    flops=flops * 1e12,
    memory_bandwidth=bandwidth * 1e9,
    link_bandwidth=links * 1e9,
    chips_per_host=1,
    host_memory_bytes=int(host_memory * GIB),
    host_cores=int(cores),
  )


def _tpu(name: str, *figures: str) -> Chip:
  devices, memory, reserved, flops, bandwidth, links, host_memory, cores = map(float, figures)
  return Chip(
    name=name,
    devices_per_chip=int(devices),
    memory_bytes=int(memory * GIB),
    reserved_bytes=int(reserved * GIB),
    flops=flops * 1e12,
    memory_bandwidth=bandwidth * 1e9,
    link_bandwidth=links * 1e9,
    chips_per_host=4,
    host_memory_bytes=int(host_memory * GIB),
    host_cores=int(cores),
  )


_GPU_CHIPS = {line.split()[0]: _gpu(*line.split()) for line in _GPUS.strip().splitlines()}
GPUS = frozenset(_GPU_CHIPS)
CHIPS: Mapping[str, Chip] = {
  **{line.split()[0]: _tpu(*line.split()) for line in _TPUS.strip().splitlines()},
  **_GPU_CHIPS,
}

_LARGEST_SLICES = {"v2": 256, "v5e": 256, "v6e": 256}  # chips, where it is below 1,024


@dataclasses.dataclass(frozen=True)
class Topology:
  """A number of chips of one kind, such as `v3:8x8` or `cpu:8`.

  Attributes:
    kind: The part before the colon.
    num_chips: Product of the sizes after the colon.
  """

  name: str
  kind: str
  num_chips: int

  def __str__(self) -> str:
    if not self.is_cloud_tpu:
      return self.name
    return f"{self.name} ({accelerator_type(self.kind, self.num_chips)}, {self.num_chips} chips)"

  @property
  def is_cloud_tpu(self) -> bool:
    return self.kind != "cpu" and self.kind not in GPUS

  @property
  def num_devices(self) -> int:
    return self.num_chips * (1 if self.kind == "cpu" else CHIPS[self.kind].devices_per_chip)

  @property
  def num_hosts(self) -> int:
    return 1 if self.kind == "cpu" else -(-self.num_chips // CHIPS[self.kind].chips_per_host)


def accelerator_type(kind: str, num_chips: int) -> str:
  """Returns Cloud TPU's name of a slice, which counts cores: two in most chips."""
  name = {"v5e": "v5litepod", "v7x": "tpu7x"}.get(kind, kind)
  return f"{name}-{num_chips if kind in ('v5e', 'v6e') else 2 * num_chips}"


def slices(kind: str, num_chips: int) -> str:
  """Returns the slices that have this many chips, several if there is none so large."""
  count = -(-num_chips // _LARGEST_SLICES.get(kind, num_chips))
  name = accelerator_type(kind, num_chips // count)
  return name if count == 1 else f"{count} x {name}"


def parse_topology(name: str) -> Topology:
  """Parses the name of a topology.

  Raises:
    ValueError: If it does not name one.
  """
  kind, _, sizes = name.partition(":")
  if (kind != "cpu" and kind not in CHIPS) or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){0,2}", sizes):
    raise ValueError(
      f"topology {name!r}; write KIND:SIZES such as v3:8x8, v4:4x4x4 or cpu:8, where KIND is one of"
      f" {', '.join([*CHIPS, 'cpu'])}"
    )
  return Topology(name, kind, math.prod(map(int, sizes.split("x"))))


def this_machine(*, memory_bytes: int, cores: int, num_devices: int) -> Chip:
  """Returns this machine's CPU, divided equally among `num_devices` devices.

  The figures are only orders of magnitude: per core sixteen float32 multiply-adds per cycle at
  2.5 GHz, and 20 GB/s of memory traffic.
  """
  return Chip(
    name="cpu",
    memory_bytes=memory_bytes // num_devices,
    reserved_bytes=0,
    flops=cores * 80e9 / num_devices,
    memory_bandwidth=20e9 / num_devices,
    link_bandwidth=20e9 / num_devices,
    chips_per_host=num_devices,
    host_memory_bytes=memory_bytes,
    host_cores=cores,
  )
