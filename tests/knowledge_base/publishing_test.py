"""A knowledge base in an object store: what is missing is copied, and readers follow."""

import json
import os
import pickle
import shutil
import threading
import time
import uuid

import pytest

from realm_jax import main
from realm_jax.foundations import object_store
from realm_jax.knowledge_base import folder
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import commits

MOSS = {"id": "moss", "text": "Moss grows in the shade."}
OAK = {"id": "oak", "text": "An oak is tall."}


@pytest.fixture
def address(emulated_gcs, request, monkeypatch):
  monkeypatch.setattr(folder, "_COPY_SECONDS", 0.0)
  yield f"gs://bucket/{request.node.name.partition('[')[0]}{uuid.uuid4().hex}"
  emulated_gcs.refuse(lambda method, path: False)
  emulated_gcs.watch = lambda names: None


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", [MOSS], language="en")


def ids(base, question):
  return [hit.id for hit in base.search(question)]


def follows(reader, number):
  """Returns whether a reader gets to a commit."""
  until = time.monotonic() + 30
  while reader.commit.number != number and time.monotonic() < until:
    time.sleep(0.05)
  return reader.commit.number == number


def test_readers_follow_what_is_published(base, address, emulated_gcs):
  assert base.publish(address) == 2, "a segment and a commit"
  reader = KnowledgeBase(f"{address}/")
  assert ids(reader, "moss") == ["moss"] and str(reader).startswith(f"{address}: 1 document")
  assert pickle.loads(pickle.dumps(reader)).path == address
  base.add([OAK])
  assert ids(reader, "tall oak") == [], "not published yet"
  assert base.publish(address) == 2 and follows(reader, base.commit.number)
  assert ids(reader, "tall oak") == ["oak"]
  base.compact()
  assert base.publish(address) == 2 and follows(reader, base.commit.number)
  assert ids(reader, "moss") == ["moss"] and ids(reader, "oak") == ["oak"]
  assert base.publish(address) == 0, "everything is there"
  names = [name for name in emulated_gcs.names() if name.startswith(address.rpartition("/")[2])]
  assert len(names) == 3, "old files are gone, from the copy too"
  copied = [name for _, _, names in os.walk(reader._folder.path) for name in names]
  assert len(copied) == 3


def test_an_interrupted_copy_changes_nothing_and_is_repeated(base, address, emulated_gcs):
  base.publish(address)
  reader = KnowledgeBase(address)
  base.add([OAK])
  emulated_gcs.refuse(lambda method, path: method == "POST" and "complete.json" in path)
  with pytest.raises(Exception, match=r"503|Service|retr"):
    base.publish(address)
  assert KnowledgeBase(address).num_documents == 1
  emulated_gcs.refuse(lambda method, path: method == "GET")
  assert ids(reader, "moss") == ["moss"], "an outage does not show"
  emulated_gcs.refuse(lambda method, path: False)
  base.publish(address)
  assert follows(reader, base.commit.number) and len(reader) == 2


def test_another_knowledge_base_is_not_replaced(base, address, tmp_path):
  for name in ("older", "other branch"):
    shutil.copytree(base.path, tmp_path / name)
  base.add([OAK])
  base.publish(address)
  with pytest.raises(ValueError, match=r"has commit 2, which is newer than commit 1 here"):
    KnowledgeBase(tmp_path / "older").publish(address)
  branch = KnowledgeBase(tmp_path / "other branch")
  other = KnowledgeBase.create(tmp_path / "other", [OAK], language="en")
  for number in range(3):
    branch.add([{**MOSS, "id": f"moss {number}"}])
    with pytest.raises(ValueError, match=r"has a commit 2 that did not lead to commit \d here"):
      branch.publish(address)
    with pytest.raises(ValueError, match=r"has another knowledge base; give another address"):
      other.publish(address)
    other.add([{**MOSS, "id": f"moss {number}"}])
    other.compact()
  object_store.absolute(f"{address}/else/complete.json").write_text(
    json.dumps({"files": {"passages": {"size": 0, "sha256": "0" * 64}}})
  )
  with pytest.raises(ValueError, match="has something else than a knowledge base"):
    base.publish(f"{address}/else")
  assert KnowledgeBase(address).num_documents == 2


def test_only_the_original_is_changed(base, address):
  base.publish(address)
  published = KnowledgeBase(address)
  for change in (
    lambda: published.add([OAK]),
    lambda: published.delete("moss"),
    published.compact,
    published.train,
    lambda: KnowledgeBase.create(address),
  ):
    with pytest.raises(ValueError, match=r"nothing can be changed; .* publish it with `realm kb p"):
      change()


def test_what_is_no_address_and_what_is_not_there_is_named(base, address, capsys):
  assert main.main(["kb", "publish", base.path, "elsewhere"]) == 1
  assert "elsewhere is no address in an object store, such as gs://" in capsys.readouterr().err
  assert main.main(["kb", "search", address, "moss"]) == 1
  assert f"{address} is missing or incomplete" in capsys.readouterr().err
  assert main.main(["kb", "publish", base.path, address]) == 0
  assert "2 files copied" in capsys.readouterr().out
  assert main.main(["kb", "search", address, "moss"]) == 0
  assert "moss" in capsys.readouterr().out


def objects(store, address):
  root = address.removeprefix("gs://bucket/") + "/"
  return {name.removeprefix(root) for name in store.names() if name.startswith(root)}


def test_an_address_that_is_used_anew_is_followed(base, address, emulated_gcs, tmp_path):
  base.publish(address)
  reader = KnowledgeBase(address)
  for name in objects(emulated_gcs, address):
    object_store.absolute(f"{address}/{name}").unlink()
  other = KnowledgeBase.create(tmp_path / "other", [OAK], language="en")
  other.publish(address)
  assert other.commit.number == base.commit.number
  until = time.monotonic() + 30
  while ids(reader, "moss oak") != ["oak"] and time.monotonic() < until:
    time.sleep(0.05)
  assert ids(reader, "moss oak") == ids(KnowledgeBase(address), "moss oak") == ["oak"]


def test_a_copy_is_completed_with_files_that_are_listed(base, address, emulated_gcs, tmp_path):
  """Also if those of the unfinished copy have the same names and sizes."""
  (segment,) = (file for file in commits.needed(base.path, base.commit) if "segments" in file)
  twin = tmp_path / "twin"
  shutil.copytree(base.path, twin)
  content = (twin / segment).read_bytes()
  (twin / segment).write_bytes(content.replace(b"Moss grows", b"Lies grow "))
  base.publish(address)
  emulated_gcs.refuse(lambda method, path: method == "GET" and "commits" in path)
  with pytest.raises(Exception, match=r"503|Service|retr"):
    KnowledgeBase(address)
  emulated_gcs.refuse(lambda method, path: False)
  for name in objects(emulated_gcs, address):
    object_store.absolute(f"{address}/{name}").unlink()
  KnowledgeBase(twin).publish(address)
  assert KnowledgeBase(address).search("shade")[0].text.startswith("Lies grow")


@pytest.mark.parametrize("lost", ["segments/", "commits/", "s", ""])
def test_what_is_listed_but_lost_is_copied_again(base, address, emulated_gcs, lost):
  base.publish(address)
  gone = {name for name in objects(emulated_gcs, address) if name.startswith(lost)}
  for name in gone:
    object_store.absolute(f"{address}/{name}").unlink()
  assert base.publish(address) == len(gone - {"complete.json"})
  assert ids(KnowledgeBase(address), "moss") == ["moss"]


def test_of_two_publishers_the_later_one_counts(base, address, tmp_path, monkeypatch):
  """One of another copy of the folder, which has other locks, in the midst of the first."""
  base.publish(address)
  base.add([OAK])
  copy = KnowledgeBase(shutil.copytree(base.path, tmp_path / "copy"))
  copy.add([{"id": "elm", "text": "An elm is green."}])
  calls, of_first = [], object_store._objects

  def interrupted(remote):
    calls.append(remote)
    if len(calls) == 2:  # the listing is written, and nothing removed
      copy.publish(address)
    return of_first(remote)

  monkeypatch.setattr(object_store, "_objects", interrupted)
  base.publish(address)
  assert ids(KnowledgeBase(address), "elm") == ["elm"]


def test_a_folder_is_published_once_at_a_time(base, address, monkeypatch):
  base.publish(address)
  base.add([OAK])
  begun, finish, write = threading.Event(), threading.Event(), object_store._copy

  def slow(*paths):
    begun.set()
    finish.wait(10)
    return write(*paths)

  monkeypatch.setattr(object_store, "_copy", slow)
  first = threading.Thread(target=base.publish, args=[address])
  first.start()
  begun.wait(10)
  other = KnowledgeBase(base.path)
  second = threading.Thread(target=lambda: (other.compact(), other.publish(address)))
  second.start()
  second.join(0.3)
  assert second.is_alive(), "it waits"
  finish.set()
  first.join(30)
  second.join(30)
  assert len(KnowledgeBase(address)) == 2


def test_what_lies_below_an_address_besides_stays(base, address, emulated_gcs):
  for name in ("README.md", "segments/mine.txt", "other/complete.json"):
    object_store.absolute(f"{address}/{name}").write_text("mine")
  base.publish(address)
  base.add([OAK])
  base.publish(address)
  assert {"README.md", "segments/mine.txt", "other/complete.json"} < objects(emulated_gcs, address)
