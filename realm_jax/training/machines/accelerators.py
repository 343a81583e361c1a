"""Published figures of TPUs and GPUs, from which the least time of a program follows (roofline).

A device is what JAX counts as one: a core of TPU v2, v3 and v7x, a chip of the others.
"""

import dataclasses
import re
from typing import NamedTuple

import jax

from realm_jax.foundations import system
from realm_jax.training.machines.gpu_programs import Counts

GIB = 2**30


class Peak(NamedTuple):
  """The peak of one device: FLOP/s in bfloat16, and bytes per second of its memory."""

  flops: float
  memory_bandwidth: float

  def seconds(self, counts: Counts) -> float:
    """Returns the least time of a program: it computes and moves bytes at the same time."""
    return max(counts.flops / self.flops, counts.bytes_accessed / self.memory_bandwidth)


@dataclasses.dataclass(frozen=True)
class Tpu:
  """A kind of TPU.

  Attributes:
    device_kind: JAX's name for it.
    memory_gib: Memory.
    reserved_gib: The part of it that the compiler reserves.
  """

  device_kind: str
  memory_gib: float
  reserved_gib: float
  peak: Peak


@dataclasses.dataclass(frozen=True)
class Gpu:
  """A kind of GPU, with what a compiler has to know of it.

  Attributes:
    device_kind: JAX's name for it, without what several names have.
    memory_gb: Memory, in 10^9 bytes.
    peak: Without sparsity, of products that are summed in float32.
    capability: Major and minor compute capability.
    cores: Streaming multiprocessors.
    clock_ghz: Boost clock.
    l2_mib: Second-level cache.
    threads: Threads of a core.
    shared_kib: Shared memory of a core; a block has 1 KiB less.
  """

  device_kind: str
  memory_gb: float
  peak: Peak
  capability: tuple[int, int]
  cores: int
  clock_ghz: float
  l2_mib: int
  threads: int
  shared_kib: int

  @property
  def target_config(self) -> str:
    """The GPU in the words of XLA's `GpuTargetConfigProto`."""
    major, minor = self.capability
    # From Hopper on, code may use what only this generation has.
    features = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
    info = {
      "name": f'"NVIDIA {self.device_kind}"',
      "cuda_compute_capability": f"{{ major: {major} minor: {minor}{features} }}",
      "core_count": self.cores,
      "clock_rate_ghz": self.clock_ghz,
      "device_memory_size": int(self.memory_gb * 1e9),
      "memory_bandwidth": int(self.peak.memory_bandwidth),
      "l2_cache_size": self.l2_mib << 20,
      "threads_per_core_limit": self.threads,
      "shared_memory_per_core": self.shared_kib << 10,
      "shared_memory_per_block_optin": (self.shared_kib - 1) << 10,
      **_OF_ALL_GPUS,
    }
    fields = "\n".join(f"  {name}: {value}" for name, value in info.items())
    return f"""gpu_device_info {{
{fields}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "NVIDIA {self.device_kind}"
"""


_OF_ALL_GPUS = {
  "fpus_per_core": 128,
  "threads_per_block_limit": 1024,
  "threads_per_warp": 32,
  "shared_memory_per_block": 48 << 10,
  "registers_per_core_limit": 1 << 16,
  "registers_per_block_limit": 1 << 16,
  "thread_dim_limit_x": 1024,
  "thread_dim_limit_y": 1024,
  "thread_dim_limit_z": 64,
  "block_dim_limit_x": 2**31 - 1,
  "block_dim_limit_y": 65535,
  "block_dim_limit_z": 65535,
  "device_address_bits": 64,
  "pcie_bandwidth": 32 << 30,
  "ecc_enabled": "true",
  "driver_version": '"12.8.0"',
  "runtime_version": '"12.8.0"',
  "compile_time_toolkit_version": '"12.8.0"',
}
TPUS = {
  "v2": Tpu("TPU v2", 8, 0.5, Peak(22.5e12, 350e9)),
  "v3": Tpu("TPU v3", 16, 0.5, Peak(61.5e12, 450e9)),
  "v4": Tpu("TPU v4", 32, 0.5, Peak(275e12, 1200e9)),
  "v5e": Tpu("TPU v5 lite", 16, 0.25, Peak(197e12, 819e9)),
  "v5p": Tpu("TPU v5", 95, 0.25, Peak(459e12, 2765e9)),
  "v6e": Tpu("TPU v6 lite", 32, 0.75, Peak(918e12, 1640e9)),
  "v7x": Tpu("TPU7x", 96, 1.25, Peak(1153.5e12, 3690e9)),
}
GPUS = {
  "a100": Gpu("A100-SXM4-80GB", 85.1, Peak(312e12, 2039e9), (8, 0), 108, 1.41, 40, 2048, 164),
  "a100-40gb": Gpu("A100-SXM4-40GB", 42.4, Peak(312e12, 1555e9), (8, 0), 108, 1.41, 40, 2048, 164),
  "h100": Gpu("H100 80GB HBM3", 84.9, Peak(989e12, 3350e9), (9, 0), 132, 1.98, 50, 2048, 228),
  "h200": Gpu("H200", 150.1, Peak(989e12, 4800e9), (9, 0), 132, 1.98, 50, 2048, 228),
  "b200": Gpu("B200", 191.5, Peak(2250e12, 8000e9), (10, 0), 148, 1.97, 126, 2048, 228),
  "l4": Gpu("L4", 24.2, Peak(121e12, 300e9), (8, 9), 58, 2.04, 48, 1536, 100),
  "rtx4090": Gpu("RTX 4090", 25.4, Peak(165.2e12, 1008e9), (8, 9), 128, 2.52, 72, 1536, 100),
  "rtx5090": Gpu("RTX 5090", 33.7, Peak(209.5e12, 1792e9), (12, 0), 170, 2.41, 96, 1536, 100),
  "rtx6000": Gpu("RTX PRO 6000", 102.0, Peak(503.8e12, 1792e9), (12, 0), 188, 2.6, 128, 1536, 100),
}
# What a name may have besides. With any other word it is another device: a laptop's, a part of one.
_SAME_DEVICE = r"^NVIDIA (GeForce )?|(?<=^TPU v5)p$| Blackwell (Server|Workstation) Edition$"


def peak_of(device: jax.Device, *, num_devices: int) -> Peak | None:
  """Returns the published peak of a device, or None if it is not in the tables.

  Args:
    device: A device, present or only compiled for.
    num_devices: The number of CPU devices that share the machine.
  """
  if device.platform == "cpu":
    # Orders of magnitude: per core sixteen float32 multiply-adds a cycle at 2.5 GHz, and 20 GB/s.
    cores = system.num_cores()
    return Peak(cores * 80e9 / num_devices, 20e9 / num_devices)
  kind = re.sub(_SAME_DEVICE, "", device.device_kind)
  return next((of.peak for of in (*TPUS.values(), *GPUS.values()) if of.device_kind == kind), None)
