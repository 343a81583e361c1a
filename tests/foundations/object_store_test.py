"""What is written to an object store is complete or absent, whatever dies or fails."""

import hashlib
import itertools
import json
import os
import pathlib
import tempfile

import jax
import numpy as np
import pytest

from launch.upload import upload
from realm_jax.checkpoints import orbax_files
from realm_jax.corpus import input_files, passage_store, reading
from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.training.run import metric_writers

KIND = DirectoryKind(name="a thing", files=("*", "*/"))


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


@pytest.mark.parametrize(
  ("variables", "path"),
  [
    ({"HOME": "/home/a", "REALM_CACHE": "/b"}, "/b"),
    ({"HOME": "/home/a", "REALM_CACHE": "~/b"}, "/home/a/b"),
    ({"HOME": "/home/a", "REALM_CACHE": ""}, "/home/a/.cache/realm_jax"),
    ({"HOME": ""}, "{tmp}/realm_jax_{uid}"),
    ({"HOME": "here"}, "{tmp}/realm_jax_{uid}"),
    ({}, "{tmp}/realm_jax_{uid}"),
  ],
)
def test_the_cache_is_in_no_folder_that_happens_to_be_there(variables, path, tmp_path, monkeypatch):
  for name in ("HOME", "REALM_CACHE"):
    monkeypatch.delenv(name, raising=False)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  if "HOME" not in variables:  # nor is the user known
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
  assert object_store.cache_directory() == path.format(tmp=tmp_path, uid=os.getuid())


def test_a_cache_among_temporary_files_is_the_users_own(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", "")
  monkeypatch.delenv("REALM_CACHE", raising=False)
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  assert pathlib.Path(object_store.cache_directory()).stat().st_mode & 0o777 == 0o700
  uid = os.getuid()
  pathlib.Path(tmp_path, f"realm_jax_{uid + 1}").mkdir()
  monkeypatch.setattr(os, "getuid", lambda: uid + 1)
  with pytest.raises(ValueError, match="belongs to another user; name a directory with REALM_CA"):
    object_store.cache_directory()


def test_a_local_directory_does_not_move_with_the_current_one(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert object_store.local_copy("corpus", "*") == str(tmp_path / "corpus")


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


class Vocabulary:
  vocab_size, digest, cls_id, sep_id = 100, "v1", 2, 3


def test_a_passage_store_is_mapped_from_a_local_copy(root, emulated_gcs):
  with atomic_files.new_directory(root, kind=KIND) as directory:
    writer = passage_store.PassageStoreWriter(directory, tokenizer=Vocabulary, max_passage_length=9)
    ids = np.arange(3)
    writer.append(
      passage_store.Passage(title="T", text="Text.", title_ids=ids, body_ids=ids + 4, uid=7)
    )
    written = writer.finish(counts={})
  store = passage_store.PassageStore(root)
  assert store.directory == root
  assert store.metadata == written
  assert store.body_ids([0], length=3)[0].tolist() == [[4, 5, 6]]
  copied = pathlib.Path(store.local_directory, "texts.bin")
  assert not copied.exists()  # trainers and index builders read only ids
  assert store.text(0) == "Text." and copied.exists()
  assert isinstance(store.uids.base.base, np.memmap)
  emulated_gcs.write(name_in(root, "texts.bin"), b"Tex")
  # What was compared once is used; only a machine that has no copy yet would find the damage.
  assert passage_store.PassageStore(root).text(0) == "Text."


def make_state(seed):
  weights = np.random.default_rng(seed).standard_normal((64, 32)).astype(np.float32)
  return {"params": {"w": jax.numpy.asarray(weights)}}


def test_checkpoints_come_back_past_requests_that_are_refused_and_count_by_their_mark(
  root, emulated_gcs
):
  numbers = itertools.count()
  emulated_gcs.refuse(lambda method, path: next(numbers) % 150 == 40)
  before = emulated_gcs.refused
  with orbax_files.Checkpointer(root, keep=2) as checkpointer:
    for step in (5, 9):
      checkpointer.save(step, make_state(step), input={"a": np.arange(3)}, metadata={"m": step})
  assert orbax_files.steps(root) == [5, 9]
  path = orbax_files.resolve(root)
  assert str(path) == f"{root}/9"
  assert orbax_files.read_metadata(path) == {"m": 9}
  assert emulated_gcs.refused > before
  object_store.absolute(f"{root}/9/commit_success.txt").unlink()
  assert orbax_files.steps(root) == [5]
  with orbax_files.Checkpointer(root, keep=3) as checkpointer:
    for step, seed in ((5, 5), (9, 7)):
      assert checkpointer.latest_step() == 5
      if step == 9:
        checkpointer.save(step, make_state(seed), input={}, metadata={})
        checkpointer.wait()
      restored = checkpointer.restore(make_state(0)).state["params"]["w"]
      np.testing.assert_array_equal(restored, make_state(seed)["params"]["w"])


def test_logs_go_on_from_what_was_copied_last(root, emulated_gcs):
  def append(logs, step):
    writer = metric_writers.MetricWriter(logs.directory, step=step - 1)
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
