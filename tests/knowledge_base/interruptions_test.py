"""Any process may end at any operation on files, and others read and write at any of them.

Histories are random, and what a simple model in memory has is compared with what is found.
"""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import pathlib
import random
import re
import shutil

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from realm_jax.devices.directory_lock import DirectoryInUseError
from realm_jax.foundations import object_store
from realm_jax.knowledge_base import folder
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import edit

OPERATIONS = (
  *("open", "listdir", "scandir", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir"),
)
GROWING = "fsync", "replace", "rename", "mkdir"
IDS = [f"<id{number}>" for number in range(14)]
WORDS = ["moss", "fern", "alga", "lichen", "sedge", "heath"]


class Death(BaseException):
  """Ends everything, and no handler can do anything about it."""


class Object(MemoryFile):
  """An object, which is there once it is whole."""

  is_whole = False

  def close(self):
    if not self.is_whole:
      self.is_whole = True
      self.fs.step("close", self.commit)


class Bucket(MemoryFileSystem):
  """An object store in memory; its requests are operations, too."""

  protocol, store, pseudo_dirs, cachable = "az", {}, [""], False
  operations = None

  @classmethod
  def _strip_protocol(cls, path):
    return "/" + path.removeprefix("az://").strip("/")

  def open(self, path, mode="rb", **kwargs):
    if "w" not in mode:
      return self.step("open", super().open, path, mode, **kwargs)
    return Object(self, self._strip_protocol(path))

  def find(self, *args, **kwargs):
    return self.step("find", super().find, *args, **kwargs)

  def rm(self, *args, **kwargs):
    return self.step("rm", super().rm, *args, **kwargs)

  def step(self, name, act, *args, **kwargs):
    act = functools.partial(act, *args, **kwargs)
    return Bucket.operations.step(name, act, ()) if Bucket.operations else act()


class Operations:
  """Operations on files, before or after one of which something else happens.

  Args:
    at: Which of them; what is never reached does not happen.
    act: What happens; None ends the process.
    is_full: Whether the disk is full from then on instead.
  """

  def __init__(self, draw, *, at, act=None, is_full=False):
    self.is_full = is_full
    self._draw, self._left, self._act, self.ended, self._busy = draw, at, act, False, False
    self._real = {name: getattr(os, name) for name in OPERATIONS}

  def __enter__(self):
    Bucket.operations = self
    for name, real in self._real.items():
      setattr(os, name, self._patched(name, real))
    return self

  def __exit__(self, kind, *_):
    Bucket.operations = None
    for name, real in self._real.items():
      setattr(os, name, real)
    return kind is Death

  def _patched(self, name, real):
    def call(*args, **kwargs):
      return self.step(name, lambda: real(*args, **kwargs), args)

    return call

  def step(self, name, act, args):
    if self.ended:
      raise Death
    if self._busy:
      return act()
    self._left -= 1
    if self.is_full:
      grows = name in GROWING or (name == "open" and args[1] & os.O_CREAT)
      if self._left > 0 or not grows or (name == "mkdir" and os.path.exists(args[0])):
        return act()
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if self._left:
      return act()
    if self._act is None:
      self.ended = True
      if name == "fsync" and self._draw.random() < 0.5:
        with contextlib.suppress(OSError):  # a directory
          os.ftruncate(args[0], self._draw.randrange(os.fstat(args[0]).st_size + 1))
      elif self._draw.random() < 0.5:
        act()
      raise Death
    is_after, self._busy = self._draw.random() < 0.5, True
    try:
      found = act() if is_after else None
      self._act()
      return found if is_after else act()
    finally:
      self._busy = False


@dataclasses.dataclass
class Model:
  """What should be there: texts by id, and the documents that were useful for each question."""

  texts: dict
  useful: dict

  def copy(self):
    return Model(dict(self.texts), {question: {*ids} for question, ids in self.useful.items()})

  def delete(self, ids):
    for id in ids:
      del self.texts[id]
    self.useful = {q: left for q, useful in self.useful.items() if (left := useful - {*ids})}


def tokens_in(content):
  return {*re.findall(rb"<token\d+>", content)}


class History:
  def __init__(self, seed, tmp_path):
    self.draw, self.path = random.Random(seed), tmp_path / "kb"
    self.model, self.tokens, self.kind = Model({}, {}), 0, ""
    self.models = []  # what may be found
    self.checks, self.replacement = 0, tmp_path
    self.base = KnowledgeBase.create(self.path, language="en")
    self.reader = KnowledgeBase(self.path)

  def new_text(self):
    self.tokens += 1
    return f"{self.draw.choice(WORDS)} {self.draw.choice(WORDS)} <token{self.tokens:04}>."

  def change(self):
    """Returns a change, and the model that it leads to."""
    base, after, draw = self.base, self.model.copy(), self.draw
    there = sorted(after.texts)
    chosen = draw.sample(IDS, draw.randint(1, 5))
    documents = [{"id": id, "text": self.new_text()} for id in chosen]
    kinds = ["update"] * 4 + ["sync", "compact", "purge"]
    kinds += ["delete"] * 3 + ["question"] * 3 if there else []
    kinds += ["forget question"] if after.useful else []
    self.kind = draw.choice(kinds)
    match self.kind:
      case "update":
        after.texts |= {d["id"]: d["text"] for d in documents}
        return lambda: base.update(documents), after
      case "sync":
        after.delete({*there} - {*chosen})
        after.texts |= {d["id"]: d["text"] for d in documents}
        return lambda: base.sync(documents), after
      case "delete":
        gone = draw.sample(there, min(len(there), draw.randint(1, 4)))
        after.delete(gone)
        return lambda: base.delete(gone), after
      case "question":
        question, id = f"<question{draw.randrange(9)}>", draw.choice(there)
        after.useful.setdefault(question, set()).add(id)
        return lambda: base.feedback(question, useful=id), after
      case "forget question":
        del after.useful[question := draw.choice(sorted(after.useful))]
        return lambda: base.forget(question), after
      case kind:
        return lambda: base.compact(purge=kind == "purge"), after

  def write(self):
    """Makes a few changes."""
    for _ in range(self.draw.randint(1, 4)):
      change, self.model = self.change()
      change()
      self.models.append(self.model)

  def replace(self):
    """Puts another folder in the place of this one, after as many checks as are left."""
    self.checks -= 1
    if not self.checks and self.replacement.exists():
      self.path.rename(self.replacement.with_suffix(".before"))
      self.replacement.rename(self.path)

  def read(self):
    """Checks that what is found is one of the models, and never again one before it."""
    base = KnowledgeBase(self.path) if self.draw.random() < 0.5 else self.reader
    found = self.check(base, *self.models)
    self.models = self.models[self.models.index(found) :]

  def check(self, base, *models):
    """Checks that a knowledge base has what one of some models has, and returns it."""
    texts = {d.id: d.text for d in base.documents(count=100)}
    (model,) = [model for model in models if model.texts == texts][:1] or [None]
    assert model, (texts, [model.texts for model in models])
    for word in WORDS[:2]:
      found = {hit.id: hit.text for hit in base.search(word, k=100)}
      assert {id for id, text in texts.items() if word in text} <= found.keys()
      assert all(texts[id] == text for id, text in found.items())
    return model

  def check_all(self, *bases):
    """Checks that knowledge bases have what this one should."""
    for base in bases:
      self.check(base, self.model)
      self.check_questions(base, self.model)

  def check_questions(self, base, *models):
    useful = {
      past.question: {one.id for one in past.useful} for past in base.past_questions(count=100)
    }
    assert useful in [model.useful for model in models]
    return useful

  def check_files(self, *, compacted=False):
    """Checks that nothing is left over."""
    commit, here = self.base.commit, pathlib.Path(self.base.path)
    assert {path.name for path in here.iterdir()} <= {
      *("commits", "segments", "models", "memory.jsonl", "directory.lock")
    }
    named = set()
    for path in (here / "commits").iterdir():
      named |= {segment["name"] for segment in json.loads(path.read_text())["segments"]}
    assert {path.name for path in (here / "segments").iterdir()} == named
    if compacted:
      content = b"".join(path.read_bytes() for path in here.rglob("*") if path.is_file())
      assert len(commit.segments) <= 1 and len([*(here / "commits").iterdir()]) == 1
      assert tokens_in(content) == tokens_in(str(self.model).encode())


@pytest.fixture(autouse=True)
def small_segments_are_merged(monkeypatch):
  monkeypatch.setattr(edit, "_FAN", 3)
  monkeypatch.setattr(edit, "_SMALL", 2)


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_ends_anywhere_leaves_what_was_or_what_should_be(seed, tmp_path):
  history = History(seed, tmp_path)
  for _ in range(60):
    change, after = history.change()
    before = history.model
    with Operations(history.draw, at=history.draw.randint(1, 150)) as operations:
      change()
    if operations.ended:
      history.base = KnowledgeBase(history.path)
      history.model = history.check(history.base, before, after)
      history.model.useful = history.check_questions(history.base, before, after)
    else:
      history.model = after
      if "question" not in history.kind:
        history.check_files(compacted=history.kind in ("compact", "purge"))
    history.check_all(history.base, history.reader)
  history.base.compact(purge=True)
  history.check_files(compacted=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_is_full_from_anywhere_on_keeps_what_was_and_takes_more_later(seed, tmp_path):
  history, failed = History(seed, tmp_path), 0
  for _ in range(60):
    change, after = history.change()
    is_done = False
    with Operations(history.draw, at=history.draw.randint(1, 150), is_full=True):
      with contextlib.suppress(OSError):
        change()
        is_done = True
      before = after if is_done else history.model
      history.model = history.check(history.base, before, after)
      history.model.useful = history.check_questions(history.base, before, after)
    failed += not is_done
    history.check_all(history.base, history.reader, KnowledgeBase(history.path))
    if "question" not in history.kind:
      history.check_files()
  assert 5 < failed < 55


@pytest.mark.parametrize("seed", range(4))
def test_who_reads_at_any_operation_of_a_change_finds_what_was_or_what_will_be(seed, tmp_path):
  history = History(seed, tmp_path)
  for _ in range(40):
    change, after = history.change()
    history.models = [history.model, after]
    with Operations(history.draw, at=history.draw.randint(1, 150), act=history.read):
      change()
    history.model = after
    history.check_all(history.reader)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_changed_at_any_operation_of_who_reads_is_found_or_was_found(seed, tmp_path):
  history = History(seed, tmp_path)
  for _ in range(40):
    history.write()
    history.models = [history.model]
    with Operations(history.draw, at=history.draw.randint(1, 20), act=history.write):
      reader = history.draw.choice([history.reader, None])
      base = KnowledgeBase(history.path) if reader is None else reader
      texts = {document.id: document.text for document in base.documents(count=100)}
    assert texts in [model.texts for model in history.models]
    history.models = [history.model]
    with Operations(history.draw, at=history.draw.randint(1, 9), act=history.write):
      found = {hit.id: hit.text for hit in base.search(WORDS[0], k=100)}
    matching = ({id: t for id, t in m.texts.items() if WORDS[0] in t} for m in history.models)
    assert found in [*matching]
    history.check_all(base)


@pytest.fixture
def address(monkeypatch, tmp_path):
  monkeypatch.setenv("REALM_CACHE", str(tmp_path / "cache"))
  monkeypatch.setattr(folder, "_COPY_SECONDS", float("inf"))  # copied when the test says so
  fsspec.register_implementation("az", Bucket, clobber=True)
  yield "az://bucket/kb"
  Bucket.store.clear()


def lost():
  """Returns names that the address lists and has not."""
  listing = Bucket.store.get("/bucket/kb/complete.json")
  names = json.loads(listing.getvalue())["files"] if listing else ()
  return [name for name in names if f"/bucket/kb/{name}" not in Bucket.store]


def opened_elsewhere(address, tmp_path, monkeypatch):
  """Opens what is published on a machine that has no copy."""
  with monkeypatch.context() as patch:
    patch.setenv("REALM_CACHE", str(tmp_path / "another cache"))
    shutil.rmtree(tmp_path / "another cache", ignore_errors=True)
    return KnowledgeBase(address)


@pytest.mark.parametrize("seed", range(2))
def test_what_a_publisher_or_a_copy_that_ends_anywhere_has_not_done_the_next_one_does(
  seed, address, tmp_path, monkeypatch
):
  history = History(seed, tmp_path)
  history.base.publish(address)
  published, reader = [history.model], KnowledgeBase(address)
  for _ in range(30):
    history.write()
    with Operations(history.draw, at=history.draw.randint(1, 60)) as operations:
      history.base.publish(address)
    published = [*published * operations.ended, history.model]
    assert lost() == []
    history.check(opened_elsewhere(address, tmp_path, monkeypatch), *published)
    copied = reader._folder.path
    with Operations(history.draw, at=history.draw.randint(1, 60)):
      object_store.mirror(address, copied)
    reader = KnowledgeBase(address) if history.draw.random() < 0.3 else reader
    object_store.mirror(address, copied)
    history.check(reader, *published)
  history.base.compact(purge=True)
  history.base.publish(address)
  published = b"".join(file.getvalue() for file in Bucket.store.values())
  assert tokens_in(published) == tokens_in(str(history.model).encode())


@pytest.mark.parametrize("seed", range(2))
def test_of_publishers_that_meet_anywhere_one_counts_and_nothing_of_it_is_lost(
  seed, address, tmp_path, monkeypatch
):
  history = History(seed, tmp_path)
  for number in range(20):
    history.write()
    older = shutil.copytree(history.path, tmp_path / f"older{number}")
    history.models = [history.model]
    if history.draw.random() < 0.8:
      history.write()
    first, second = history.draw.sample([KnowledgeBase(older), history.base], 2)
    meet = functools.partial(try_to, second)
    with Operations(history.draw, at=history.draw.randint(1, 40), act=meet):
      try_to(first)
    if history.draw.random() < 0.5:  # who was there first has not seen the other one
      history.check(opened_elsewhere(address, tmp_path, monkeypatch), *history.models)
    history.base.publish(address)
    assert lost() == []
    history.check(opened_elsewhere(address, tmp_path, monkeypatch), history.model)


def try_to(base):
  with contextlib.suppress(ValueError):  # there is a newer commit
    base.publish("az://bucket/kb")


@pytest.mark.parametrize("seed", range(2))
def test_a_folder_that_takes_the_place_of_one_that_is_changed_keeps_what_it_has(
  seed, tmp_path, monkeypatch
):
  history, refused, lock = History(seed, tmp_path), 0, folder.lock

  @contextlib.contextmanager
  def interrupted(directory):
    with lock(directory) as check:
      yield lambda: (history.replace(), check())

  monkeypatch.setattr(folder, "lock", interrupted)
  for number in range(20):
    history.write()
    history.replacement = tmp_path / f"other{number}"
    if history.draw.random() < 0.5:  # a backup
      shutil.copytree(history.path, history.replacement)
      replaced = history.model
      history.write()
    else:
      replaced = Model({"other": "moss fern."}, {"other": {"other"}})
      other = KnowledgeBase.create(history.replacement, language="en")
      other.add([{"id": id, "text": text} for id, text in replaced.texts.items()])
      other.feedback("other", useful="other")
      for _ in range(history.draw.randrange(9)):
        other.compact(purge=True)
    history.checks = history.draw.randint(1, 5)
    change, _ = history.change()
    try:
      change()
    except DirectoryInUseError as error:
      assert "was moved or replaced" in str(error)
      refused += 1
    history.checks = 1
    history.replace()
    history.model = replaced
    history.check_all(KnowledgeBase(history.path), history.reader, history.base)
  assert refused > 2
