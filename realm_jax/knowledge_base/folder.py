"""The folder of a knowledge base: its newest commit, opened, and changes to it.

The folder has immutable segments and numbered commits, as an index of Lucene has. A change writes
new segments, then one commit, so a process that is killed at any time leaves the state before the
change or the one after. Readers keep the commit that they opened until they look for a newer one;
writers hold the lock of the folder.
"""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from realm_jax.foundations import object_store, plain_files
from realm_jax.foundations.output_kinds import UNFINISHED, DirectoryKind
from realm_jax.knowledge_base.encoders import text_encoders
from realm_jax.knowledge_base.encoders.text_encoders import TextEncoder
from realm_jax.knowledge_base.learning import memory_file, search, use_memory
from realm_jax.knowledge_base.learning.adapter import Adapter
from realm_jax.knowledge_base.learning.answerability import Answerability
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store import commits, file_states
from realm_jax.knowledge_base.store.edit import STAGED, Edit, Embedder, due
from realm_jax.knowledge_base.store.segment import Segment
from realm_jax.knowledge_base.store.snapshot import Snapshot

if TYPE_CHECKING:
  from realm_jax.knowledge_base.encoders.models import Encoder

_COPY_SECONDS = 10.0  # between looks for a newer commit in an object store
_NUMBER, _DIGEST, _ID = "[0-9]" * 9, "[0-9a-f]" * commits.MODEL_DIGITS, "[0-9a-f]" * 16
KIND = DirectoryKind(
  name="a knowledge base",
  files=(
    f"commits/{_NUMBER}-{_ID}-{_ID}.json",
    f"commits/.{_NUMBER}-*",
    f"segments/{_NUMBER}-{_ID}",
    f"models/{_DIGEST}/",
    f"models/.{_DIGEST}{UNFINISHED}*/",
    f"{STAGED}/{_DIGEST}-*",
    use_memory.FILE,
    f".{use_memory.FILE}.*",
    file_states.FILE,
    f".{file_states.FILE}.*",
    "directory.lock",
  ),
)


def located(path: str | os.PathLike) -> str:
  """Returns a path that does not depend on the current directory; a link in it may change."""
  if object_store.is_remote(path):
    return os.fspath(path).rstrip("/")
  return os.path.abspath(os.path.expanduser(path))


def check_writable(path: str) -> None:
  """Checks that a folder is on this machine."""
  if object_store.is_remote(path):
    raise ValueError(
      f"{path} is in an object store, where nothing can be changed; change a local folder (its "
      "texts may be in a bucket), and publish it with `realm kb publish`"
    )


class Folder:
  """Follows a folder; safe to use from several threads.

  Of a knowledge base in an object store it follows a local copy, which is brought up to date in the
  background, so that no search waits.

  Attributes:
    path: The folder, or that of the copy.
    memory: What is remembered of its use.

  Args:
    encoder: An encoder from elsewhere; None loads the one of the folder when it is needed.
  """

  def __init__(self, path: str, *, encoder: Any = None):
    self.path = self._source = path
    self._copied = float("inf")  # when the copy was compared
    if object_store.is_remote(path):
      name = "kb-" + hashlib.sha256(path.encode()).hexdigest()[:24]
      self.path = os.path.join(object_store.cache_directory(), name)
      object_store.mirror(path, self.path)
      self._copied = time.monotonic()
    self._answerability: tuple[Snapshot | None, Answerability | None] = None, None
    self._opening = threading.Lock()  # so that no thread goes back to an older snapshot
    self.given: TextEncoder | None = None
    self._files: list[str] = []  # commits that were there when the snapshot was opened
    self._snapshot = self._open()
    if encoder is not None:
      name = self._snapshot.commit.settings.encoder
      if not name or text_encoders.find(self.path, name) is None:
        has = "an encoder of its own" if name else "none, so it is searched by words"
        raise ValueError(f"{path} has {has}; open it without `encoder`")
      self.given = text_encoders.opened(encoder)
      if self.given is None:
        raise ValueError(f"{path} was made with another encoder than the directory {encoder}")
      self.encoder(name)
    self.memory = memory_file.MemoryFile(self.path)
    with contextlib.suppress(OSError):  # whoever needs it is told, such as who may not read it
      self.memory.newest()  # erases what a killed process has not

  def newest(self) -> Snapshot:
    """Returns the newest snapshot, which it opens if there is a newer commit."""
    if time.monotonic() > self._copied + _COPY_SECONDS:
      self._copied = float("inf")
      threading.Thread(target=self._copy, daemon=True).start()
    if not self._is_newest(commits.files(self.path)):
      with self._opening:
        if not self._is_newest(files := commits.files(self.path)):
          self._snapshot, self._files = self._open(self._snapshot), files
    return self._snapshot

  def _is_newest(self, files: list[str]) -> bool:
    """Returns whether the snapshot is of the newest commit, or of the newest one that is whole."""
    return files[-1] == self._snapshot.commit.file or files == self._files

  def _copy(self) -> None:
    try:
      object_store.mirror(self._source, self.path)
    except Exception as error:  # an outage
      logging.warning("could not bring %s up to date, will retry: %s", self._source, error)
    self._copied = time.monotonic()

  def publish(self, address: str) -> int:
    """Copies the newest commit to an object store; see `KnowledgeBase.publish`."""
    if not object_store.is_remote(address):
      raise ValueError(f"{address} is no address in an object store, such as gs://bucket/kb")
    address = address.rstrip("/")
    with lock(self.path):
      commit, names = self.newest().commit, object_store.listed(address)
      before = commits.check_published(address, commit, names)
      return object_store.publish(
        self.path,
        commits.needed(self.path, commit),
        address,
        ours=commits.PUBLISHED,
        keep_before=before >= commit.purged,
      )

  def remembered(self, snapshot: Snapshot) -> Memory | None:
    """Returns the past questions that a search uses; None for users who may not read them."""
    if not snapshot.commit.settings.memory:
      return Memory()
    try:
      return self.memory.newest()
    except PermissionError as error:
      logging.log_first_n(logging.WARNING, "searching without past questions: %s", 1, error)
      return None

  def answerability(self, snapshot: Snapshot) -> Answerability | None:
    """Returns what knows whether an answer was found; None if nothing was learned."""
    known, model = self._answerability
    if known is not snapshot:
      name = snapshot.commit.settings.answerability
      # Past questions, which it needs, are not published.
      is_there = name and not object_store.is_remote(self._source)
      model = Answerability.open(self.path, name) if is_there else None
      self._answerability = snapshot, model
    return model

  def warm(self) -> None:
    """Searches, and embeds short questions alone and together, which compiles the programs."""
    snapshot = self.newest()
    search.hits(snapshot, "1", 1)  # whose language is not plain
    if name := snapshot.commit.settings.encoder:
      for text in ("1", "1 " * 20):
        for number in (1, 2):
          self.encoder(name).questions([text] * number)

  def encoder(self, name: str) -> "Encoder | TextEncoder":
    """Returns the encoder of this name."""
    kept = text_encoders.find(self.path, name)
    if kept is not None:
      return kept.open(self.given, path=self.path)
    check_can_compute()
    from realm_jax.knowledge_base.encoders.models import (
      open_encoder,  # late, because it imports JAX
    )

    return open_encoder(os.path.abspath(commits.model_path(self.path, name)))

  def compact(self, *, purge: bool) -> None:
    """Merges all segments into one; see `KnowledgeBase.compact`."""
    with self.exclusively(keep=1) as edit:
      before = edit.before.commit.segments
      if len(before) > 1 or any(entry.deleted for entry in before):
        edit.merge(range(len(before)))
      if purge:
        edit.purge()
        self.memory.purge()
        file_states.remove(self.path)

  @contextlib.contextmanager
  def exclusively(self, *, keep: int = commits.KEPT) -> Iterator[Edit]:
    """Yields an edit of the newest commit, and commits it unless an error is raised.

    Segments that are due are merged afterwards, in commits of their own: a change is visible and
    safe before, and since merging only copies, it takes less time than making the segments did.

    Args:
      keep: Commits that stay, the newest ones.
    """
    check_writable(self._source)
    with lock(self.path) as check:
      before = self.newest()
      commits.check_newest(self.path, before.commit)
      commits.remove_unnamed(self.path)
      self.memory.drop_missing(before)  # which a kill after a deletion has left
      name = before.commit.settings.encoder
      embed = Embedder(self.path, name, lambda texts: self.encoder(name).passages(texts))
      edit = Edit(self.path, before, check=check, embed=embed if name else None)
      with self._cleaned(check):
        yield edit
        edit.commit()
      moved = edit.moved(self.memory.newest().documents, self.newest())
      check()
      try:
        edit.write_states(self.newest())
        with self._cleaned(check):
          while groups := due(before := self.newest()):
            merging = Edit(self.path, before, check=check)
            for numbers in groups:
              merging.merge(numbers)
            merging.commit()
      except OSError as error:  # such as of a full disk; what was changed is safe
        logging.warning("%s is tidied after another change: %s", self.path, error)
      check()
      self.memory.drop_missing(self.newest(), edit.deleted, moved)
      if keep < commits.KEPT:
        check()
        commits.remove_unnamed(self.path, keep=keep)

  @contextlib.contextmanager
  def _cleaned(self, check: Callable[[], None]) -> Iterator[None]:
    """Removes what an unfinished change has left, if the folder is still there."""
    try:
      yield
    except BaseException:
      with contextlib.suppress(OSError, RuntimeError):
        check()
        commits.remove_unnamed(self.path)
      raise

  def _open(self, before: Snapshot | None = None) -> Snapshot:
    """Opens the newest commit; segments that are open stay so."""
    known = {}
    if before is not None:
      names = [entry.name for entry in before.commit.segments]
      known = dict(zip(names, before.segments, strict=True))
    while True:
      commit = commits.read_newest(self.path)
      plain_files.check_plain(self.path)
      try:
        return self._opened(commit, known)
      except FileNotFoundError:  # merged by a writer in the meantime, or lost
        if commits.files(self.path)[-1] == commit.file:
          raise

  def _opened(self, commit: commits.Commit, known: Mapping[str, Segment]) -> Snapshot:
    segments = tuple(
      known.get(entry.name) or Segment.open(commits.segment_path(self.path, entry.name))
      for entry in commit.segments
    )
    for entry, segment in zip(commit.segments, segments, strict=True):
      counts = segment.num_documents, segment.num_passages
      if counts != (entry.num_documents, entry.num_passages):
        raise ValueError(f"segment {entry.name} of {self.path} is not that of its commit")
    used = commit.settings
    adapt = Adapter.open(self.path, used.adapter) if used.adapter else None
    sizes = {segment.embedding_size for segment in segments}
    sizes |= {len(adapt.bias_E)} if adapt and sizes else set()
    if len(sizes) > 1 or (segments and bool(used.encoder) != any(sizes)):
      several = " and ".join(map(str, sorted(sizes)))
      raise ValueError(f"segments and adapter of {self.path} are of {several} numbers an embedding")

    def embed(text: str) -> np.ndarray:
      question_E = self.encoder(used.encoder).question(text)
      if sizes and {*question_E.shape} != sizes:
        raise ValueError(f"the encoder of {self.path} is not the one that embedded its passages")
      return question_E

    return Snapshot(
      commit=commit, segments=segments, embed=embed if used.encoder else None, adapt=adapt
    )


@contextlib.contextmanager
def made(directory: str) -> Iterator[set[str]]:
  """Makes the folder of a knowledge base, and removes it again if an error is raised.

  It stays if it has embeddings, which the next try takes, or if somebody else has changed it.

  Yields:
    For the ids of the knowledge bases that are made in it.
  """
  KIND.check(directory)
  path, missing, ids = os.path.abspath(directory), [], set()
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    os.lstat(path)  # raises if it is too long
  while not os.path.lexists(path):
    missing.append(path)
    path = os.path.dirname(path)
  is_new = bool(missing) or not next(os.scandir(directory), None)
  os.makedirs(directory, exist_ok=True)
  try:
    yield ids
  except BaseException:
    with contextlib.suppress(OSError, ValueError, RuntimeError), lock(directory):
      newest = commits.read_empty(directory)
      is_ours = newest is None or newest.base in ids
      if is_new and is_ours and STAGED not in os.listdir(directory):
        for entry in [*os.scandir(directory)]:
          shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
    with contextlib.suppress(OSError):  # not empty
      for path in missing:
        os.rmdir(path)
    raise


def begin(
  directory: str, settings: commits.Settings, *, encoder: Any, ids: set[str]
) -> TextEncoder | None:
  """Writes the first commit of a knowledge base; returns its encoder if that is from elsewhere.

  Args:
    encoder: See `KnowledgeBase.create`.
    ids: Gets the id of the knowledge base.
  """
  with lock(directory):
    newest = commits.read_empty(directory)
    commits.remove_unnamed(directory)
    given, name = text_encoders.opened(encoder), ""
    if given is not None:
      name = text_encoders.keep(directory, given, before=newest)
    elif encoder is not None:
      from realm_jax.knowledge_base.encoders import models  # late, because it imports JAX

      name = models.copy_model(directory, encoder, reads=False)
    settings = dataclasses.replace(settings, encoder=name)
    first = commits.Commit(number=newest.number + 1 if newest else 0, settings=settings)
    ids.add(first.base)
    commits.write(directory, first)
  return given


@contextlib.contextmanager
def lock(directory: str) -> Iterator[Callable[[], None]]:
  """Holds a folder for writing: threads wait for each other, another process is an error.

  Yields:
    What to call before each step: a RuntimeError says that another folder has taken its place.
  """
  from realm_jax.devices import directory_lock  # late, because readers do not need it

  check_writable(directory)
  plain_files.check_plain(directory)  # also, what was moved or deleted is not made anew
  waiting = _writing.setdefault(os.path.realpath(directory), threading.Lock())
  with waiting, directory_lock.hold(directory, kind=KIND) as check:
    yield check


_writing: dict[str, threading.Lock] = {}  # by folder
_forked_with_jax = False


def _after_fork() -> None:
  """Notes in a forked process whether JAX, whose threads it does not have, had run before."""
  global _forked_with_jax
  _writing.clear()  # their threads are gone
  bridge = sys.modules.get("jax._src.xla_bridge")
  if bridge is not None and bridge.backends_are_initialized():
    _forked_with_jax = True


os.register_at_fork(after_in_child=_after_fork)


def check_can_compute() -> None:
  """Checks that JAX can run in this process."""
  if _forked_with_jax:
    raise RuntimeError(
      f"process {os.getpid()} was forked after an encoder or a reader had run, so here they would "
      "wait for ever; start processes with multiprocessing.get_context('spawn') or 'forkserver', "
      "or fork before the first search"
    )
