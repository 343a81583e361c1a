import pytest

from realm_jax.planning import chips


@pytest.mark.parametrize(
  ("name", "devices", "hosts"),
  [
    ("v3:8x8", 128, 16),
    ("v3:4x2", 16, 2),
    ("v4:4x4x4", 64, 16),
    ("v5e:8x8", 64, 16),
    ("v7x:4x4x4", 128, 16),
    ("cpu:8", 8, 1),
  ],
)
def test_a_topology_counts_devices_and_hosts(name, devices, hosts):
  topology = chips.parse_topology(name)
  assert (topology.num_devices, topology.num_hosts) == (devices, hosts)


@pytest.mark.parametrize(
  ("name", "slice_"),
  [
    ("v3:4x2", "v3:4x2 (v3-16, 8 chips)"),
    ("v4:4x4x4", "v4:4x4x4 (v4-128, 64 chips)"),
    ("v5e:8x8", "v5e:8x8 (v5litepod-64, 64 chips)"),
    ("v6e:4x4", "v6e:4x4 (v6e-16, 16 chips)"),
    ("v7x:2x2x4", "v7x:2x2x4 (tpu7x-32, 16 chips)"),
    ("cpu:8", "cpu:8"),
  ],
)
def test_a_topology_has_cloud_tpu_s_name_and_counts_chips(name, slice_):
  assert str(chips.parse_topology(name)) == slice_


def test_what_no_slice_has_is_several():
  assert chips.slices("v5e", 256) == "v5litepod-256"
  assert chips.slices("v6e", 1024) == "4 x v6e-256"
  assert chips.slices("v3", 1024) == "v3-2048"


@pytest.mark.parametrize("name", ["v3", "v3:", "v3:8x0", "v9:2x2", "v3:8x8x8x8", "cpu:", "v3:8,8"])
def test_what_is_no_topology_is_refused(name):
  with pytest.raises(ValueError, match=r"write KIND:SIZES such as v3:8x8.* one of v2, v3, .*cpu"):
    chips.parse_topology(name)


def test_devices_of_this_machine_share_it():
  whole = chips.this_machine(memory_bytes=2**30, cores=2, num_devices=1)
  part = chips.this_machine(memory_bytes=2**30, cores=2, num_devices=8)
  assert part.usable_bytes * 8 == whole.usable_bytes == 2**30
  assert part.flops * 8 == whole.flops
  assert (part.host_cores, part.host_memory_bytes) == (2, 2**30)
