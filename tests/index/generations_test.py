"""Generations are visible only when complete, and `restore` rejects damaged ones."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from realm_jax.foundations import object_store
from realm_jax.index import generations

MANIFEST = generations.Manifest(
  training_step=400,
  parameters_digest="p1",
  corpus_fingerprint="c1",
  vocabulary_digest="v1",
  num_passages=50,
  embedding_size=8,
  dtype="float32",
  searcher={"kind": "scann", "num_leaves": 7, "threads": None, "threshold": 0.2},
  recall={5: 0.97, 10: 0.95},
)


def make_shards(seed=0, dtype=np.float32):
  rng = np.random.default_rng(seed)
  return [
    {
      "embeddings": rng.standard_normal((rows, 8)).astype(dtype),
      "hashed_dataset.npy": rng.integers(256, size=(rows, 4)).astype(np.uint8),
      "scann_config.pb": np.frombuffer(b"num_neighbors: 3", np.uint8),
      "datapoint_to_token.npy": np.arange(rows, dtype=np.int32),
    }
    for rows in (30, 20)
  ]


def publish(root, generation, *, seed=0, keep=5):
  return generations.publish(str(root), generation, make_shards(seed), manifest=MANIFEST, keep=keep)


def files_below(root):
  return sorted(path for path in pathlib.Path(root).rglob("*") if path.is_file())


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_arrays_come_back_as_they_were(tmp_path, dtype):
  shards = make_shards(dtype=dtype)
  manifest = dataclasses.replace(MANIFEST, dtype=np.dtype(dtype).name)
  generations.publish(str(tmp_path / "index"), 3, shards, manifest=manifest, keep=1)
  for i, shard in enumerate(shards):
    restored = generations.restore(str(tmp_path / "index"), 3, i)
    assert set(restored) == set(shard)
    for name, array in shard.items():
      assert type(restored[name]) is np.ndarray
      assert restored[name].dtype == array.dtype
      np.testing.assert_array_equal(restored[name], array)


def test_a_storage_that_fails_is_not_a_damaged_generation(tmp_path, monkeypatch):
  publish(tmp_path, 3)

  def unavailable(*_):
    raise OSError("503 Service Unavailable")

  monkeypatch.setattr(object_store, "read_into", unavailable)
  with pytest.raises(OSError, match="503"):
    generations.restore(str(tmp_path), 3, 0)


def test_the_manifest_comes_back_as_published(tmp_path):
  before = time.time()
  published = publish(tmp_path, 7)
  assert generations.read_manifest(str(tmp_path), 7) == published
  assert published.generation == 7
  assert before <= published.created <= time.time()
  assert published.shard_rows == (30, 20)
  assert published.recall == {5: 0.97, 10: 0.95}
  assert dataclasses.replace(published, generation=-1, created=0.0, shard_rows=()) == MANIFEST


@pytest.mark.parametrize("generation", [5, 4, -1])
def test_published_and_lower_numbers_are_refused(tmp_path, generation):
  publish(tmp_path, 5)
  before = files_below(tmp_path)
  with pytest.raises(ValueError, match=f"generation {generation} .* use 6 or higher"):
    publish(tmp_path, generation, seed=1)
  assert files_below(tmp_path) == before


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda shards: shards.pop(), "hold 30 passages, the manifest says 50"),
    (lambda shards: shards[0].pop("embeddings"), "shard 0 needs an array 'embeddings'"),
    (lambda s: s[1].update(embeddings=np.ones((20, 9), np.float32)), r"not \(20, 9\)"),
    (lambda s: s[1].update(embeddings=np.ones((20, 8))), "are float64, the manifest says float32"),
    (
      lambda shards: shards[0].update({"../x": np.ones(3)}),
      "'../x' of float64 .* cannot be stored",
    ),
  ],
)
def test_shards_that_contradict_the_manifest_are_refused(tmp_path, change, message):
  shards = make_shards()
  change(shards)
  with pytest.raises(ValueError, match=message):
    generations.publish(str(tmp_path / "index"), 0, shards, manifest=MANIFEST, keep=1)
  assert not (tmp_path / "index").exists()


def flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, cut, os.remove], ids=["flip", "cut", "remove"])
def test_damage_to_any_file_is_found_or_does_no_harm(tmp_path, damage):
  shards = make_shards()
  publish(tmp_path / "0", 4)
  names = [path.relative_to(tmp_path / "0") for path in files_below(tmp_path / "0")]
  harmful = set()
  for i, name in enumerate(names, start=1):
    root = tmp_path / str(i)
    subprocess.run(["cp", "-r", tmp_path / "0", root], check=True)
    damage(root / name)
    try:
      for shard, arrays in enumerate(shards):
        restored = generations.restore(str(root), 4, shard)
        for array, content in arrays.items():
          np.testing.assert_array_equal(restored[array], content)
    except generations.DamagedGenerationError as error:
      assert f"generation 4 in {root} is damaged" in str(error)
      assert "\n" not in str(error)
      harmful.add(name)
  # What is not needed for reading (marks of completion, Orbax's notes) may be damaged unnoticed.
  needed = {name for name in names if name.suffix == ".bin" or name.name == "folder.json"}
  assert harmful >= needed and len(needed) == 1 + sum(map(len, shards))


def test_what_does_not_fit_the_reader_is_named(tmp_path):
  manifest = publish(tmp_path, 2)
  fitting = {"corpus_fingerprint": "c1", "embedding_size": 8, "vocabulary_digest": "v1"}
  generations.check_compatible(manifest, **fitting)
  for name, value in {"corpus_fingerprint": "c2", "embedding_size": 128}.items():
    with pytest.raises(ValueError) as error:
      generations.check_compatible(manifest, **{**fitting, name: value})
    assert f"generation 2 does not fit: {name} is {fitting[name]}, here it is {value}" in str(
      error.value
    )
    assert "Rebuild the index" in str(error.value)
    assert "vocabulary_digest" not in str(error.value)
  with pytest.raises(ValueError, match="vocabulary_digest is v1, here it is v2"):
    generations.check_compatible(manifest, **{**fitting, "vocabulary_digest": "v2"})


SLOW_PUBLISHER = """
import sys
import numpy as np
from realm_jax.index import generations
rows = 400_000
shards = [{"embeddings": np.random.default_rng(0).standard_normal((rows, 32), np.float32)}]
manifest = generations.Manifest(
  training_step=0, parameters_digest="", corpus_fingerprint="", vocabulary_digest="",
  num_passages=rows, embedding_size=32, dtype="float32", searcher={})
generations.publish(sys.argv[1], 1, shards, manifest=manifest, keep=1)
"""


def test_a_killed_publisher_leaves_nothing_visible_and_nothing_in_the_way(tmp_path):
  publish(tmp_path, 0)
  process = subprocess.Popen([sys.executable, "-c", SLOW_PUBLISHER, str(tmp_path)])
  try:
    while not (unfinished := list(tmp_path.glob("1.orbax-checkpoint-tmp*"))):
      assert process.poll() is None, "the publisher ended before it wrote anything"
      time.sleep(0.001)
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
  assert process.returncode == -signal.SIGKILL
  assert unfinished[0].exists()  # it was killed in the middle
  assert generations.all_generations(str(tmp_path)) == [0]
  generations.restore(str(tmp_path), 0, 0)
  publish(tmp_path, 2, seed=1)
  assert generations.all_generations(str(tmp_path)) == [0, 2]
  assert not list(tmp_path.glob("*tmp*"))
  np.testing.assert_array_equal(
    generations.restore(str(tmp_path), 2, 1)["embeddings"], make_shards(1)[1]["embeddings"]
  )


def test_a_reader_racing_with_deletion_gets_the_right_arrays_or_a_clear_error(tmp_path):
  stop = threading.Event()

  def keep_publishing():
    generation = 0
    while not stop.is_set():
      publish(tmp_path, generation, seed=generation, keep=1)
      generation += 1

  publisher = threading.Thread(target=keep_publishing)
  publisher.start()
  num_right = 0
  end = time.monotonic() + 1
  try:
    while time.monotonic() < end or not num_right:
      assert publisher.is_alive()
      generation = generations.newest(str(tmp_path))
      if generation is None:
        continue
      try:
        restored = generations.restore(str(tmp_path), generation, 1)
      except (FileNotFoundError, generations.DamagedGenerationError):
        continue
      expected = make_shards(generation)[1]["embeddings"]
      np.testing.assert_array_equal(restored["embeddings"], expected)
      num_right += 1
  finally:
    stop.set()
    publisher.join()
