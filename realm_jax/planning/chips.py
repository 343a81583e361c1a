"""What one device and one host of each kind offer, and which topology a name stands for.

A device is what JAX counts as one: a core of TPU v2 and v3, a chip of the others. The figures are
the manufacturer's published ones.
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
    name: as in a topology's name.
    devices_per_chip: devices that JAX counts.
    memory_bytes: of a device.
    reserved_bytes: of those, what the compiler keeps for itself.
    flops: peak multiplications and additions a second of a device, in bfloat16.
    memory_bandwidth: bytes a second between a device and its memory.
    link_bandwidth: bytes a second that a device sends to its neighbours, all links together.
    chips_per_host: chips that one host feeds.
    host_memory_bytes: of one host.
    host_cores: of one host.
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


CHIPS: Mapping[str, Chip] = {
  chip.name: chip
  for chip in (
    Chip(
      name="v2",
      devices_per_chip=2,
      memory_bytes=8 * GIB,
      reserved_bytes=GIB // 2,
      flops=22.5e12,
      memory_bandwidth=350e9,
      link_bandwidth=62e9,
      chips_per_host=4,
      host_memory_bytes=300 * GIB,
      host_cores=96,
    ),
    Chip(
      name="v3",
      devices_per_chip=2,
      memory_bytes=16 * GIB,
      reserved_bytes=GIB // 2,
      flops=61.5e12,
      memory_bandwidth=450e9,
      link_bandwidth=82e9,
      chips_per_host=4,
      host_memory_bytes=340 * GIB,
      host_cores=96,
    ),
    Chip(
      name="v4",
      memory_bytes=32 * GIB,
      reserved_bytes=GIB // 2,
      flops=275e12,
      memory_bandwidth=1200e9,
      link_bandwidth=150e9,
      chips_per_host=4,
      host_memory_bytes=400 * GIB,
      host_cores=240,
    ),
    Chip(
      name="v5e",
      memory_bytes=16 * GIB,
      reserved_bytes=GIB // 4,
      flops=197e12,
      memory_bandwidth=819e9,
      link_bandwidth=200e9,
      chips_per_host=4,
      host_memory_bytes=192 * GIB,
      host_cores=112,
    ),
    Chip(
      name="v5p",
      memory_bytes=95 * GIB,
      reserved_bytes=GIB // 4,
      flops=459e12,
      memory_bandwidth=2765e9,
      link_bandwidth=600e9,
      chips_per_host=4,
      host_memory_bytes=448 * GIB,
      host_cores=208,
    ),
    Chip(
      name="v6e",
      memory_bytes=32 * GIB,
      reserved_bytes=3 * GIB // 4,
      flops=918e12,
      memory_bandwidth=1640e9,
      link_bandwidth=400e9,
      chips_per_host=4,
      host_memory_bytes=720 * GIB,
      host_cores=180,
    ),
  )
}

# What JAX calls a device, and what it offers: memory, operations, bytes a second.
_TPU_KINDS = {
  "TPU v2": "v2",
  "TPU v3": "v3",
  "TPU v4": "v4",
  "TPU v5 lite": "v5e",
  "TPU v5": "v5p",
  "TPU v6 lite": "v6e",
}
_GPU_KINDS = {  # the longer name first
  "H200": (141, 989e12, 4800e9),
  "H100": (80, 989e12, 3350e9),
  "A100-SXM4-80GB": (80, 312e12, 2039e9),
  "A100": (40, 312e12, 1555e9),
  "L4": (24, 121e12, 300e9),
}


def chip_of_device_kind(device_kind: str) -> Chip | None:
  """Returns the published figures of a device by JAX's name for it, or None."""
  if device_kind in _TPU_KINDS:
    return CHIPS[_TPU_KINDS[device_kind]]
  for name, (gigabytes, flops, bandwidth) in _GPU_KINDS.items():
    if name in device_kind:
      return Chip(
        name=name,
        memory_bytes=gigabytes * 10**9,
        reserved_bytes=0,
        flops=flops,
        memory_bandwidth=bandwidth,
        link_bandwidth=450e9,
        chips_per_host=8,
        host_memory_bytes=0,
        host_cores=0,
      )
  return None


@dataclasses.dataclass(frozen=True)
class Topology:
  """So many chips of one kind, such as `v3:8x8` or `cpu:8`.

  Attributes:
    name: as given.
    kind: before the colon.
    num_chips: product of the sizes after the colon.
  """

  name: str
  kind: str
  num_chips: int

  @property
  def num_devices(self) -> int:
    return self.num_chips * (1 if self.kind == "cpu" else CHIPS[self.kind].devices_per_chip)

  @property
  def num_hosts(self) -> int:
    return 1 if self.kind == "cpu" else -(-self.num_chips // CHIPS[self.kind].chips_per_host)


def parse_topology(name: str) -> Topology:
  """Reads the name of a topology.

  Raises:
    ValueError: if it is none.
  """
  kind, _, sizes = name.partition(":")
  if (kind != "cpu" and kind not in CHIPS) or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){0,2}", sizes):
    raise ValueError(
      f"topology {name!r}; write KIND:SIZES such as v3:8x8, v4:4x4x4 or cpu:8, with a kind out of"
      f" {', '.join([*CHIPS, 'cpu'])}"
    )
  return Topology(name, kind, math.prod(map(int, sizes.split("x"))))


def this_machine(*, memory_bytes: int, cores: int, num_devices: int) -> Chip:
  """Returns the processor of a machine as that many devices, each with its share of the whole.

  Sixteen float32 multiplications and additions a cycle at 2.5 GHz for a core and 20 GB/s of memory
  traffic are the order of magnitude, no more.
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
