"""What an evaluator does about generations that it cannot read."""

import json
import threading

import numpy as np
import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.evaluation.following import EVALUATIONS, Following
from realm_jax.index import generations


def publish(index, number):
  manifest = generations.Manifest(
    training_step=10 * number,
    parameters_digest="p",
    corpus_fingerprint="c",
    vocabulary_digest="v",
    num_passages=3,
    embedding_size=2,
    dtype="float32",
    searcher={},
  )
  shards = [{"embeddings": np.zeros((3, 2), np.float32)}]
  generations.publish(str(index), number, shards, manifest=manifest, keep=5)


@pytest.mark.parametrize("file", ["folder.json", "shard_00000/embeddings.bin"])
def test_a_damaged_generation_is_passed_over(tmp_path, file):
  index = tmp_path / "index"
  publish(index, 1)
  damaged = index / "1" / "arrays" / file
  damaged.write_bytes(damaged.read_bytes()[:-1])
  sources = Sources(checkpoints=str(tmp_path / "checkpoints"), index=str(index))

  def evaluated(of):
    restored = generations.restore(of.index, of.generation, 0)
    return {"passages": len(restored["embeddings"])}

  later = threading.Timer(0.3, publish, (index, 2))
  later.start()
  following = Following(follow=True, until_step=20, poll_seconds=0.05)
  last = following.evaluate(evaluated, sources, output=str(tmp_path))
  later.join()
  assert (last["generation"], last["step"], last["passages"]) == (2, 20, 3)
  assert [json.loads((tmp_path / EVALUATIONS).read_text())] == [last]
