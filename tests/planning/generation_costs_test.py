import dataclasses

import ml_dtypes  # noqa: F401  registers bfloat16
import numpy as np
import pytest

from realm_jax.index import assembly
from realm_jax.index.searcher import DIMENSIONS_PER_CODE, SearcherConfig
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
  assert INDEX.bytes == 13_353_718 * (512 + 64 + 4) + 14 * 1953 * 128 * 8
  assert dataclasses.replace(INDEX, shards=0).bytes == INDEX.embedding_bytes
  assert generation_costs.host_bytes(INDEX) > 2 * INDEX.bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_planned_bytes_are_those_that_scann_stores(dtype):
  pytest.importorskip("scann")
  config = SearcherConfig(kind="scann", num_shards=2).for_corpus(10_000)
  rows_NxE = np.random.default_rng(0).standard_normal((10_000, 128)).astype(dtype)
  shards = assembly.build_shards(rows_NxE, config=config)
  planned = Index(
    passages=10_000,
    width=128,
    bytes_per_value=rows_NxE.itemsize,
    shards=2,
    leaves=config.num_leaves,
    training_rows=config.training_sample_size,
    dimensions_per_code=DIMENSIONS_PER_CODE,
  )
  stored = sum(array.nbytes for shard in shards for array in shard.values())
  assert planned.bytes == pytest.approx(stored, rel=0.02)


def test_building_takes_time_by_cores_and_none_without_scann():
  seconds = generation_costs.build_seconds(INDEX, cores=96)
  assert generation_costs.build_seconds(INDEX, cores=48) == pytest.approx(2 * seconds)
  assert generation_costs.build_seconds(dataclasses.replace(INDEX, shards=0), cores=96) == 0


@pytest.mark.parametrize("part", [field.name for field in dataclasses.fields(Times)])
def test_every_part_of_a_generation_makes_the_index_older(part):
  times = Times(**{**dict.fromkeys(("embed", "build", "load"), 0.0), part: 200.0})
  found = staleness(times, step_seconds=2, checkpoint_every=10)
  assert found.at_swap == 100
  # The trainer saves, notices and loads while the builder makes the next generation.
  busy = part not in ("save", "polls", "load")
  assert found.generation_seconds == (200 if busy else 20)


def test_recall_is_measured_on_more_cores_in_less_time():
  slow, fast = (
    generation_costs.measure_seconds(INDEX, queries=512, cores=cores, hosts=2)
    for cores in (96, 960)
  )
  assert fast < slow
  exact = dataclasses.replace(INDEX, shards=0)
  assert generation_costs.measure_seconds(exact, queries=512, cores=96, hosts=2) == 0


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
