"""Published peaks of accelerators, and the time that a program takes at them (its roofline)."""

import os
from typing import NamedTuple

import jax

# FLOP/s in bfloat16 and bytes per second of a device, as published, by JAX's name for it.
_DEVICES = {  # the longer name first
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
    cores = len(os.sched_getaffinity(0))
    return Peak(cores * 80e9 / num_devices, 20e9 / num_devices)
  kind = device.device_kind
  return next((Peak(*peak) for name, peak in _DEVICES.items() if name in kind), None)
