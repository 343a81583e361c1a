"""The communication of a compiled program is read from its text."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from realm_jax.devices import partitioning
from realm_jax.planning.collectives import collectives

P = PartitionSpec


def found(hlo, num_devices=8):
  return [
    (c.kind, c.count, c.result_bytes, c.link_bytes)
    for c in collectives(hlo, num_devices=num_devices)
  ]


@pytest.mark.parametrize(
  ("line", "expected"),
  [
    (
      "%a = f32[4,2]{1,0} all-reduce(f32[4,2] %x), replica_groups={}, to_apply=%add",
      ("all-reduce", 1, 32, 56.0),
    ),
    (
      "%a = (bf16[4]{0}, f32[]) all-reduce-start(%x, %y), replica_groups=[2,4]<=[8]",
      ("all-reduce", 1, 12, 18.0),
    ),
    (
      "ROOT %g = f32[8]{0:T(256)} all-gather(f32[4] %x), replica_groups={{0,1},{2,3}}",
      ("all-gather", 1, 32, 16.0),
    ),
    (
      "%g = (f32[4]{0}, f32[8]{0}) all-gather-start(f32[4] %x), replica_groups={{0,1},{2,3}}",
      ("all-gather", 1, 32, 16.0),
    ),
    ("%s = s8[2] reduce-scatter(s8[16] %x), replica_groups={}", ("reduce-scatter", 1, 2, 14.0)),
    (
      "%p = pred[8] collective-permute(%x), source_target_pairs={{0,1}}",
      ("collective-permute", 1, 8, 8),
    ),
  ],
)
def test_a_line(line, expected):
  assert found(line) == [expected]


def test_other_lines_count_for_nothing():
  assert found("%d = f32[8] all-gather-done(%g)\n%f = f32[8] fusion(%all-reduce.1), calls=%c") == []


@pytest.mark.parametrize(
  ("spec", "out", "kind", "size"),
  [
    (P("data"), P(), "all-gather", 4096),
    (P(None, "data"), P("data"), "all-to-all", 512),
  ],
)
def test_a_real_program(spec, out, kind, size):
  mesh = partitioning.make_mesh()
  shape = jax.ShapeDtypeStruct((32, 32), jnp.float32, sharding=NamedSharding(mesh, spec))
  move = jax.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, out))
  [collective] = collectives(move.lower(shape).compile().as_text(), num_devices=8)
  assert (collective.kind, collective.result_bytes) == (kind, size)
