import dataclasses

import pytest

from realm_jax.planning import generation_costs
from realm_jax.planning.generation_costs import Index, Times, staleness

INDEX = Index(
  passages=13_353_718,
  width=128,
  bytes_per_value=4,
  shards=14,
  leaves=1953,
  training_rows=390_600,
  dimensions_per_code=2,
)


def test_bytes_of_an_index():
  assert INDEX.embedding_bytes == 13_353_718 * 512
  assert INDEX.bytes == 13_353_718 * (512 + 32 + 4)
  assert dataclasses.replace(INDEX, shards=0).bytes == INDEX.embedding_bytes
  assert generation_costs.host_bytes(INDEX) > 2 * INDEX.bytes


def test_building_takes_time_by_cores_and_none_without_scann():
  seconds = generation_costs.build_seconds(INDEX, cores=96)
  assert generation_costs.build_seconds(INDEX, cores=48) == pytest.approx(2 * seconds)
  assert generation_costs.build_seconds(dataclasses.replace(INDEX, shards=0), cores=96) == 0


def test_a_slow_builder_makes_the_index_stale():
  times = Times(embed=400, build=80, load=20)
  found = staleness(times, step_seconds=1, checkpoint_every=100)
  assert (found.at_swap, found.generation_seconds) == (500, 480)
  assert found.at_most == 500 + 480 + 100


def test_a_fast_builder_waits_for_checkpoints():
  times = Times(embed=40, build=8, load=2)
  found = staleness(times, step_seconds=1, checkpoint_every=500)
  assert (found.at_swap, found.generation_seconds) == (50, 500)
  assert found.at_most == 50 + 500
