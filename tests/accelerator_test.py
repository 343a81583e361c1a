"""Devices that benchmarks/accelerator.py has figures of."""

import pytest

from benchmarks import accelerator


@pytest.mark.parametrize(
  ("kind", "flops"),
  [("TPU v3", 61.5e12), ("TPU v5 lite", 197e12), ("NVIDIA H100 80GB HBM3", 989e12), ("cpu", None)],
)
def test_a_device_is_known_by_its_kind(kind, flops):
  peak = accelerator.peak_of(kind)
  assert (peak and peak.flops) == flops
