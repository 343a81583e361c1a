"""Two processes build an index together, each its part, and search it together."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from realm_jax.checkpoints import index_builder
from realm_jax.index import assembly, generations
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.retrieval import passage_embedding

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOGETHER = """
import sys
import jax
import numpy as np
from realm_jax.devices import processes
root, port, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
processes.join(coordinator=f"127.0.0.1:{port}", num_processes=2, process_id=process)
from realm_jax.foundations import array_folder
from realm_jax.index import assembly, generations
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.training.build_index import build_index

def build(name="together", **settings):
  build_index(
    checkpoints=f"{root}/first/checkpoints",
    passages=f"{root}/passages",
    index=f"{root}/{name}",
    builder=BuilderConfig(searcher=SearcherConfig(kind="scann", num_shards=3, **settings)),
  )

build()
queries = np.random.default_rng(process).standard_normal((5 + process, 8)).astype(np.float32)
found = assembly.load_searcher(f"{root}/together", 0, spread=True).search(queries, 7)
np.savez(f"{root}/found_{process}.npz", queries=queries, ids=found.ids_BxK, scores=found.scores_BxK)

def fail(directory, shard):
  raise OSError("disk full")

saved = array_folder.write_arrays
array_folder.write_arrays = fail if process else saved
try:
  build()
except RuntimeError as error:
  assert "process 1: OSError('disk full')" in str(error), error
else:
  raise AssertionError("published without the shards of process 1")
assert generations.newest(f"{root}/together") == 0
array_folder.write_arrays = saved
build()
# All candidates are rescored, so that enough leaves reach any target.
build(
  "trees", min_passages_for_tree=100, num_leaves=30, target_recall=0.9, reorder_candidates=1000
)
"""


def test_two_processes_build_and_search_an_index_like_one(world, build, float_tolerance):
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
  flags = [f for f in os.environ["XLA_FLAGS"].split() if "device_count" not in f]
  flags.append("--xla_force_host_platform_device_count=4")
  environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
  children = [
    subprocess.Popen(
      [sys.executable, "-c", TOGETHER, str(world), port, str(process)], env=environment
    )
    for process in range(2)
  ]
  try:
    assert [child.wait(300) for child in children] == [0, 0]
  finally:
    for child in children:
      child.kill()
  scann = SearcherConfig(kind="scann", num_shards=3)
  build("first", world / "alone", builder=BuilderConfig(searcher=scann))
  assert generations.all_generations(str(world / "together")) == [0, 1]
  alone = generations.read_manifest(str(world / "alone"), 0)
  atol = float_tolerance(depth=300, scale=3)  # the tiny encoder, whose last norm is over 8 numbers
  for generation in (0, 1):
    built = generations.read_manifest(str(world / "together"), generation)
    assert built.shard_rows == alone.shard_rows
    assert (built.searcher, built.recall) == (alone.searcher, alone.recall)
    np.testing.assert_allclose(
      assembly.load_embeddings(str(world / "together"), generation),
      assembly.load_embeddings(str(world / "alone"), 0),
      atol=atol,
    )
  trees = generations.read_manifest(str(world / "trees"), 0)
  assert trees.recall[10] >= 0.9
  assert 1 < trees.searcher["num_leaves_to_search"] < trees.searcher["num_leaves"]
  for process in range(2):
    with np.load(world / f"found_{process}.npz") as found:
      expected = assembly.load_searcher(str(world / "alone"), 0).search(found["queries"], 7)
      np.testing.assert_array_equal(found["ids"], expected.ids_BxK)
      np.testing.assert_allclose(found["scores"], expected.scores_BxK, atol=8 * atol)


def test_a_builder_that_is_killed_goes_on_from_its_finished_passages(
  world, build, tmp_path, monkeypatch, float_tolerance
):
  embed, embedded, finished = passage_embedding.embed_passages, [], []

  def killed_at_the_third(batches, *, passages_N, **settings):
    if not finished and len(embedded) == 2:
      raise KeyboardInterrupt
    embedded.append(passages_N)
    return embed(batches, passages_N=passages_N, **settings)

  num_passages = generations.read_manifest(str(world / "index"), 0).num_passages
  builder = BuilderConfig(
    searcher=SearcherConfig(kind="exact", num_shards=1),
    tokens_per_batch=-(-num_passages // 4) * 32,  # wordpieces of a passage
  )
  monkeypatch.setattr(index_builder, "_BATCHES_KEPT", 1)
  monkeypatch.setattr(passage_embedding, "embed_passages", killed_at_the_third)
  with pytest.raises(KeyboardInterrupt):
    build("first", tmp_path / "index", builder=builder)
  assert generations.newest(str(tmp_path / "index")) is None
  finished[:], embedded[:] = embedded, []
  build("first", tmp_path / "index", builder=builder)
  assert len(finished) == len(embedded) == 2 and finished[-1][-1] + 1 == embedded[0][0]
  whole = assembly.load_embeddings(str(world / "index"), 0)
  found = assembly.load_embeddings(str(tmp_path / "index"), 0)
  np.testing.assert_allclose(found, whole, atol=float_tolerance(depth=300, scale=3))
  assert not list(tmp_path.glob("*.unfinished"))
