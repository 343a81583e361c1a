"""What is written to an object store is complete or absent, whatever dies or fails."""

import hashlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.parse
import urllib.request

import jax
import numpy as np
import pytest

from launch.upload import upload
from realm_jax.corpus import input_files, passage_store, reading
from realm_jax.data import batches, prepared_examples
from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import ANYTHING, DirectoryKind
from realm_jax.index import generations
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.training import checkpoints, metric_writers

KIND = DirectoryKind(name="a thing", files=ANYTHING)


@pytest.fixture
def root(emulated_gcs, request):
  """A directory of the test's own in the object store, which is repaired after the test."""
  yield f"gs://bucket/{request.node.name.partition('[')[0]}"
  emulated_gcs.refuse(lambda method, path: False)
  emulated_gcs.watch = lambda names: None


def name_in(root, *parts):
  """The name of an object in its bucket."""
  return "/".join([root.removeprefix("gs://bucket/"), *parts])


def write_directory(path, **files):
  with atomic_files.new_directory(path, kind=KIND) as directory:
    for name, content in files.items():
      pathlib.Path(directory, name).write_text(content)


def read(directory, name):
  return pathlib.Path(object_store.local_copy(directory, name), name).read_text()


def test_a_directory_is_there_when_its_list_of_files_is(root, emulated_gcs):
  with atomic_files.new_directory(root, kind=KIND) as directory:
    pathlib.Path(directory, "below").mkdir()
    pathlib.Path(directory, "below", "a").write_text("one")
  listed = json.loads(emulated_gcs.read(name_in(root, "complete.json")))["files"]
  assert listed == {"below/a": {"size": 3, "sha256": hashlib.sha256(b"one").hexdigest()}}
  assert read(root, "below/a") == "one"
  object_store.absolute(f"{root}/complete.json").unlink()
  with pytest.raises(FileNotFoundError, match=r"incomplete: it has no complete\.json.*upload"):
    read(root, "below/a")


def test_no_request_leaves_a_list_of_files_that_are_not_there(root, emulated_gcs):
  wrong = []

  def compare(names):
    if name_in(root, "complete.json") in names:
      listed = json.loads(emulated_gcs.read(name_in(root, "complete.json")))["files"]
      for name, record in listed.items():
        content = emulated_gcs.read(name_in(root, name)) if name_in(root, name) in names else b""
        wrong.extend([name] if hashlib.sha256(content).hexdigest() != record["sha256"] else [])

  emulated_gcs.watch = compare
  write_directory(root, a="one", b="two")
  write_directory(root, a="three", b="four")
  assert (read(root, "a"), read(root, "b")) == ("three", "four")
  assert wrong == []


def test_a_directory_that_is_replaced_is_read_anew_and_without_its_old_files(root):
  write_directory(root, a="one", b="old")
  assert (read(root, "a"), read(root, "b")) == ("one", "old")
  write_directory(root, a="two")
  assert read(root, "a") == "two"
  assert not os.path.exists(os.path.join(object_store.local_copy(root, "*"), "b"))


def test_a_failed_publication_leaves_what_was_there(root):
  write_directory(root, a="one")
  with pytest.raises(KeyboardInterrupt), atomic_files.new_directory(root, kind=KIND) as directory:
    pathlib.Path(directory, "a").write_text("two")
    raise KeyboardInterrupt
  assert read(root, "a") == "one"


def test_what_lies_in_the_cache_is_not_copied_again(root, emulated_gcs):
  write_directory(root, a="one" * 1000)
  read(root, "a")
  before = emulated_gcs.requests["GET"]
  read(root, "a")
  listing_alone = emulated_gcs.requests["GET"] - before
  (cached,) = pathlib.Path(object_store.local_copy(root)).glob("a")
  cached.write_text("cut short")
  before = emulated_gcs.requests["GET"]
  assert read(root, "a") == "one" * 1000
  assert emulated_gcs.requests["GET"] - before > listing_alone


@pytest.mark.parametrize("content", [b"two", b"on", b""])
def test_a_file_that_is_not_the_one_listed_is_refused(root, emulated_gcs, content):
  write_directory(root, a="one")
  emulated_gcs.write(name_in(root, "a"), content)
  with pytest.raises(ValueError, match=r"a is not the file that complete\.json lists"):
    read(root, "a")
  assert "a" not in os.listdir(object_store.local_copy(root))


@pytest.mark.parametrize(
  "listing",
  [
    {"files": {"../evil": {"size": 3, "sha256": "0"}}},
    {"files": {"/etc/evil": {"size": 3, "sha256": "0"}}},
    {"files": {"a/../../evil": {"size": 3, "sha256": "0"}}},
    {"files": {"a": {"size": "3", "sha256": "0"}}},
    {"files": {"a": {}}},
    {"files": ["a"]},
    [],
    "{",
  ],
)
def test_a_list_that_names_anything_else_is_refused(root, emulated_gcs, listing):
  write_directory(root, a="one")
  text = listing if isinstance(listing, str) else json.dumps(listing)
  emulated_gcs.write(name_in(root, "complete.json"), text.encode())
  with pytest.raises(ValueError, match=r"complete\.json is not a list of files"):
    read(root, "*")


def test_a_finished_directory_is_uploaded_for_others(root, tmp_path):
  (tmp_path / "a").write_text("one")
  (tmp_path / object_store.COMPLETE_FILE).write_text("of the store that it was copied from")
  upload(str(tmp_path), output=root)
  assert read(root, "a") == "one"
  listing = object_store.absolute(root) / object_store.COMPLETE_FILE
  assert list(json.loads(listing.read_text())["files"]) == ["a"]
  with pytest.raises(ValueError, match="output=.* is local"):
    upload(str(tmp_path), output=str(tmp_path / "b"))
  with pytest.raises(ValueError, match="source=gs://.* is in an object store"):
    upload(root, output=root)
  with pytest.raises(FileNotFoundError, match="no directory"):
    upload(str(tmp_path / "absent"), output=root)


def test_documents_are_read_where_they_lie(root):
  for name in ("b.txt", "a.txt", "deep/c.txt"):
    atomic_files.write_text(f"{root}/{name}", f"Title {name}\nThe text of {name}.")
  assert input_files.input_files(f"{root}/*.txt") == [f"{root}/a.txt", f"{root}/b.txt"]
  every = input_files.input_files(root)
  assert every == [f"{root}/a.txt", f"{root}/b.txt", f"{root}/deep/c.txt"]
  reader = reading.DocumentReader(*input_files.find_files([root]))
  assert [document.title for document in reader] == [f"Title {p[len(root) + 1 :]}" for p in every]
  assert reader.fraction() == 1
  with pytest.raises(FileNotFoundError, match="no object matches"):
    input_files.input_files(f"{root}/*.jsonl")


def test_what_another_process_writes_is_seen(root, emulated_gcs):
  atomic_files.write_text(f"{root}/a", "one")
  listed = lambda: sorted(path.name for path in object_store.absolute(root).iterdir())  # noqa: E731
  assert listed() == ["a"]
  query = urllib.parse.urlencode({"uploadType": "media", "name": name_in(root, "b")})
  address = f"{os.environ['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/bucket/o?{query}"
  urllib.request.urlopen(urllib.request.Request(address, data=b"two")).close()
  assert listed() == ["a", "b"]


def test_a_file_is_copied_in_ranges(root, monkeypatch):
  monkeypatch.setattr(object_store, "_RANGE", 3)
  write_directory(root, a="0123456789", b="", c="012")
  assert [read(root, name) for name in "abc"] == ["0123456789", "", "012"]


def test_text_of_a_corpus_that_was_replaced_is_refused(root):
  for title in ("one", "two"):
    with atomic_files.new_directory(root, kind=KIND) as directory:
      writer = passage_store.PassageStoreWriter(
        directory, tokenizer=Vocabulary, max_passage_length=9
      )
      ids = np.arange(3)
      writer.append(title=title, text="Text.", title_ids=ids, body_ids=ids, uid=7)
      writer.finish(counts={})
    if title == "one":
      store = passage_store.PassageStore(root)
  with pytest.raises(ValueError, match="was replaced after it had been opened; open it again"):
    store.title(0)


def test_a_process_copies_only_its_own_prepared_examples(root):
  with atomic_files.new_directory(root, kind=KIND) as directory:
    writer = prepared_examples.Writer(directory, vocab_size=100)
    for stream in range(2):
      writer.write_stream([{"ids": np.full((3, 2), stream, np.int32)}])
    writer.write_arrays({"labels": np.arange(4)})
    written = writer.finish(settings={}, order="shuffled", seed=0)
  assert prepared_examples.read_manifest(root) == written
  shard = batches.Shard(index=1, num_shards=2)
  rows = prepared_examples.open_batches(
    root, settings={}, order="shuffled", batch_size=2, shard=shard
  )
  assert next(rows)["ids"].tolist() == [[1, 1], [1, 1]]
  names = os.listdir(object_store.local_copy(root))
  assert "stream_001.ids.bin" in names
  assert "stream_000.ids.bin" not in names and "labels.bin" not in names
  assert prepared_examples.read_arrays(root)["labels"].tolist() == [0, 1, 2, 3]


class Vocabulary:
  vocab_size, digest, cls_id, sep_id = 100, "v1", 2, 3


def test_a_passage_store_is_mapped_from_a_local_copy(root, emulated_gcs):
  with atomic_files.new_directory(root, kind=KIND) as directory:
    writer = passage_store.PassageStoreWriter(directory, tokenizer=Vocabulary, max_passage_length=9)
    ids = np.arange(3)
    writer.append(title="T", text="Text.", title_ids=ids, body_ids=ids + 4, uid=7)
    written = writer.finish(counts={})
  store = passage_store.PassageStore(root)
  assert store.directory == root
  assert store.metadata == written
  assert store.body_ids([0], length=3)[0].tolist() == [[4, 5, 6]]
  copied = pathlib.Path(store.local_directory, "texts.bin")
  assert not copied.exists()  # trainers and index builders read only ids
  assert store.text(0) == "Text." and copied.exists()
  assert isinstance(store.uids, np.memmap)
  emulated_gcs.write(name_in(root, "texts.bin"), b"Tex")
  # What was compared once is used; only a machine that has no copy yet would find the damage.
  assert passage_store.PassageStore(root).text(0) == "Text."


def make_state(seed):
  weights = np.random.default_rng(seed).standard_normal((64, 32)).astype(np.float32)
  return {"params": {"w": jax.numpy.asarray(weights)}}


def test_checkpoints_come_back_past_requests_that_are_refused(root, emulated_gcs):
  numbers = itertools.count()
  emulated_gcs.refuse(lambda method, path: next(numbers) % 150 == 40)
  before = emulated_gcs.refused
  for step in (5, 9):
    with checkpoints.Checkpointer(root, keep=2) as checkpointer:
      checkpointer.save(step, make_state(step), input={"a": np.arange(3)}, metadata={"m": step})
  assert checkpoints.steps(root) == [5, 9]
  path = checkpoints.resolve(root)
  assert str(path) == f"{root}/9"
  assert checkpoints.read_metadata(path) == {"m": 9}
  with checkpoints.Checkpointer(root, keep=2) as checkpointer:
    restored = checkpointer.restore(make_state(0))
  np.testing.assert_array_equal(restored.state["params"]["w"], make_state(9)["params"]["w"])
  assert emulated_gcs.refused > before


def test_a_checkpoint_without_its_mark_is_none(root):
  with checkpoints.Checkpointer(root, keep=3) as checkpointer:
    for step in (1, 2):
      checkpointer.save(step, make_state(step), input={}, metadata={})
      checkpointer.wait()
  object_store.absolute(f"{root}/2/commit_success.txt").unlink()
  assert checkpoints.steps(root) == [1]
  with checkpoints.Checkpointer(root, keep=3) as checkpointer:
    assert checkpointer.latest_step() == 1
    checkpointer.save(2, make_state(7), input={}, metadata={})
    checkpointer.wait()
    restored = checkpointer.restore(make_state(0))
  np.testing.assert_array_equal(restored.state["params"]["w"], make_state(7)["params"]["w"])


MANIFEST = generations.Manifest(
  training_step=0,
  parameters_digest="",
  corpus_fingerprint="",
  vocabulary_digest="",
  num_passages=300,
  embedding_size=8,
  dtype="float32",
  searcher={},
)
PUBLISHER = """
import sys
import numpy as np
from realm_jax.index import generations
manifest = generations.Manifest(
  training_step=0, parameters_digest="", corpus_fingerprint="", vocabulary_digest="",
  num_passages=300, embedding_size=8, dtype="float32", searcher={})
shards = [{"embeddings": np.ones((100, 8), np.float32)} for _ in range(3)]
print("ready", flush=True)
generations.publish(sys.argv[1], 1, shards, manifest=manifest, keep=2)
"""


def publish(root, generation):
  shards = [{"embeddings": np.full((150, 8), generation, np.float32)} for _ in range(2)]
  generations.publish(root, generation, shards, manifest=MANIFEST, keep=5)


def test_a_publisher_killed_in_mid_publication_leaves_nothing_visible(root, emulated_gcs):
  publish(root, 0)
  publisher = subprocess.Popen(
    [sys.executable, "-c", PUBLISHER, root], stdout=subprocess.PIPE, text=True
  )

  def kill_at_the_second_shard(names):
    if any(name.startswith(name_in(root, "1/shard_00001/")) for name in names):
      publisher.send_signal(signal.SIGKILL)

  emulated_gcs.watch = kill_at_the_second_shard
  publisher.communicate(timeout=100)
  assert publisher.returncode == -signal.SIGKILL
  emulated_gcs.watch = lambda names: None
  assert any(name.startswith(name_in(root, "1/")) for name in emulated_gcs.names())
  assert generations.all_generations(root) == [0]
  with pytest.raises(FileNotFoundError, match="generation 1 is not in"):
    generations.restore(root, 1, 0)
  publish(root, 1)
  assert generations.all_generations(root) == [0, 1]
  assert (generations.restore(root, 1, 1)["embeddings"] == 1).all()


def test_damage_of_a_generation_is_found(root, emulated_gcs):
  publish(root, 0)
  arrays = [n for n in emulated_gcs.names() if n.startswith(name_in(root, "0/shard_00000/"))]
  longest = max(arrays, key=lambda name: len(emulated_gcs.read(name)))
  content = bytearray(emulated_gcs.read(longest))
  content[len(content) // 2] ^= 1
  emulated_gcs.write(longest, bytes(content))
  with pytest.raises(
    generations.DamagedGenerationError, match="generation 0 in gs://.* is damaged"
  ):
    generations.restore(root, 0, 0)


def test_logs_go_on_from_what_was_copied_last(root, emulated_gcs):
  def append(logs, step):
    writer = metric_writers.JsonLinesWriter(logs.directory, step=step - 1)
    writer.write_scalars(step, {"loss": 1.0})
    writer.close()

  first = object_store.MirroredLogs(root, seconds=600)
  append(first, 1)
  first.flush()
  append(first, 2)  # and the process is killed
  second = object_store.MirroredLogs(root, seconds=600)
  append(second, 2)
  second.close()
  assert not os.path.exists(second.directory)
  rows = emulated_gcs.read(name_in(root, "metrics.jsonl")).decode().splitlines()
  assert [json.loads(row)["step"] for row in rows] == [1, 2]


def test_what_needs_a_disk_says_so():
  with pytest.raises(ValueError, match="workdir=gs://b/run is in an object store; use a local"):
    launch_local(workdir="gs://b/run", corpus="c", passages="p")


def test_a_store_that_no_library_reads_is_named(tmp_path):
  with pytest.raises(ValueError, match="extra `gcs`"):
    object_store.absolute("nowhere://bucket/x")
