"""Everything in an object store: the losses of a run on disk, an index."""

import dataclasses
import json
import os

import pytest

from launch.upload import upload
from realm_jax.index import generations
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.training.build_index import build_index
from realm_jax.training.run.metric_writers import METRICS_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = "gs://bucket/everything"


@pytest.fixture(scope="module")
def store(world, emulated_gcs):
  """The emulated store with the corpora, and generation 0 of the world's index."""
  for name in ("training", "passages"):
    upload(str(world / name), output=f"{ROOT}/{name}")
  manifest = generations.read_manifest(str(world / "index"), 0)
  shard = generations.restore(str(world / "index"), 0, 0)
  manifest = dataclasses.replace(manifest, shard_rows=())
  generations.publish(f"{ROOT}/index", 0, [shard], manifest=manifest, keep=2)
  return emulated_gcs


def test_a_run_that_is_stopped_and_goes_on_has_the_losses_of_one_on_disk(
  store, world, start, losses
):
  keywords = {n: f"{ROOT}/{n}" for n in ("corpus", "passages", "index")}
  keywords |= {"corpus": f"{ROOT}/training", "workdir": f"{ROOT}/run", "checkpoint_every": 2}
  start("on_disk", corpus=str(world / "training"), num_steps=5, checkpoint_every=2)
  start("in_store", num_steps=3, **keywords)
  start("in_store", num_steps=5, **keywords)
  rows = store.read(f"everything/run/{METRICS_FILE}").decode().splitlines()
  found = {row["step"]: row["loss/total"] for row in map(json.loads, rows)}
  assert len(rows) == len(found)
  assert found == losses("on_disk")
  names = [os.path.basename(n) for n in store.names() if n.startswith("everything/run/")]
  assert {"samples.jsonl", "swaps.jsonl"} <= set(names)
  assert sum(name.startswith("events.out.tfevents") for name in names) == 2
  assert not os.path.exists("gs:")


def test_its_index_is_built_there(store):
  build_index(
    checkpoints=f"{ROOT}/run/checkpoints",
    passages=f"{ROOT}/passages",
    index=f"{ROOT}/index",
    builder=BuilderConfig(other_runs="accept"),  # the run begins on the index of another
  )
  assert generations.read_manifest(f"{ROOT}/index", 1).training_step == 5
