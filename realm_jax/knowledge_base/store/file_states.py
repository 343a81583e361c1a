"""What files were when they were last read, so that none is read again before it changes.

They are in a file of the knowledge base's folder. Nothing depends on it: without it, files are read
again, and their documents are the same. A state holds only as long as the documents of its file are
those that it led to, so it may be older or newer than the commit.
"""

import collections
import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from realm_jax import __version__
from realm_jax.corpus.documents import BadKind, BadRecord, BadRecords
from realm_jax.corpus.input_files import InputFile
from realm_jax.foundations import atomic_files, json_fields, object_store, plain_files, text_files
from realm_jax.knowledge_base.store.snapshot import Snapshot

FILE = "files.json"
_NAMED = 20  # bad records of a kind and a file
_TICK = 2 * 10**9  # ns of the coarsest clock of a file system, whose second change cannot be seen
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd
_PRIVATE = 0o600


class _Bad(NamedTuple):
  """Bad records of one kind: how many, and how the first are named after their file, and why."""

  count: int
  first: tuple[tuple[str, str], ...]


class _State(NamedTuple):
  """A file as it was read.

  Attributes:
    size: Its bytes.
    content_time: When its content changed, in ns; 0 if that was too recent to tell changes apart.
    any_time: When anything of it changed, such as its name; 0 likewise.
    documents: What it led to, as `_documents` has it.
    bad: Its bad records by kind.
  """

  size: int
  content_time: int
  any_time: int
  digest: str
  documents: int
  bad: dict[BadKind, _Bad]


class FileStates:
  """The states of files in a knowledge base, and of those that a change reads.

  Attributes:
    broken: What those files are known by that could not be read, or only in part.
  """

  def __init__(self, directory: str, before: Snapshot):
    self.broken: set[str] = set()
    self._path = os.path.join(directory, FILE)
    self._known = self._read()
    self._before = before
    self._new: dict[str, tuple[str, os.stat_result, _State]] = {}  # with the path of each

  @functools.cached_property
  def _documents(self) -> dict[str, int]:
    return _documents(self._before)

  def _read(self) -> dict[str, _State]:
    try:
      with plain_files.open_plain(self._path) as file:
        content = text_files.parse_json(file.read())
      if content["version"] == __version__:  # another may read files otherwise
        return json_fields.restored(dict[str, _State], content["files"])
    except (OSError, *json_fields.WRONG):
      pass
    return {}

  def is_unchanged(self, key: str, file: InputFile) -> bool:
    """Returns whether a file is as it was read, and its documents are still there.

    A file with the same size and times is; of another, the digest is compared.

    Args:
      key: What it is known by.
    """
    if object_store.is_remote(file.path):
      return False
    known, now = self._known.get(key), time.time_ns()
    try:
      stat = os.stat(file.path)
      times = stat.st_mtime_ns, stat.st_ctime_ns
      times = times if max(times) < now - _TICK else (0, 0)
      is_same = known is not None and any(times) and known[:3] == (stat.st_size, *times)
      digest = known.digest if known and is_same else _digest(file.path)
    except OSError:  # which reading it tells
      return False
    documents = self._documents.get(key, 0)
    self._new[key] = file.path, stat, _State(stat.st_size, *times, digest, documents, {})
    return known is not None and (known.digest, known.documents) == (digest, documents)

  def repeat(self, key: str, file: InputFile, bad: BadRecords) -> None:
    """Adds what was bad in an unchanged file, which is not read."""
    path, stat, state = self._new[key]
    self._new[key] = path, stat, state._replace(bad=self._known[key].bad)
    for kind, of_kind in self._known[key].bad.items():
      for name, reason in of_kind.first:
        self._note(key, record := BadRecord(kind=kind, name=file.shown + name, reason=reason))
        bad.add(record)
      bad.counts[kind] += of_kind.count - len(of_kind.first)

  def add(self, key: str, file: InputFile, record: BadRecord) -> None:
    """Notes a bad record of a file that is read."""
    self._note(key, record)
    if record.kind == "unreadable_files":
      self._new.pop(key, None)  # it may be readable another time
    elif key in self._new:
      bad = self._new[key][2].bad
      count, first = bad.get(record.kind, _Bad(0, ()))
      if count < _NAMED:
        first += ((record.name.removeprefix(file.shown), record.reason),)
      bad[record.kind] = _Bad(count + 1, first)

  def _note(self, key: str, record: BadRecord) -> None:
    if record.kind != "records_without_text":
      self.broken.add(key)

  def write(
    self, after: Snapshot, *, unsettled: Callable[[], Collection[str]], gone: Callable[[str], bool]
  ) -> None:
    """Writes the states after a change.

    Args:
      unsettled: Returns the files that have other documents than they led to: one is that of
        another file, or one that is in them no more was not deleted.
      gone: Returns whether a file that was not read is there no more.
    """
    states = {k: s for k, s in self._known.items() if k not in self._new and not gone(k)}
    if self._new:  # of records nothing has to be counted
      documents, others = _documents(after), unsettled()
      for key, (path, stat, state) in self._new.items():
        if key not in others and _is_still(path, stat):
          states[key] = state._replace(documents=documents.get(key, 0))
    atomic_files.remove_unfinished(self._path)
    if states != self._known:
      content = json.dumps({"version": __version__, "files": states})
      atomic_files.write_bytes(self._path, content.encode(), mode=_PRIVATE)


def remove(directory: str) -> None:
  """Forgets all states, which name files that are gone."""
  atomic_files.remove_unfinished(path := os.path.join(directory, FILE))
  with contextlib.suppress(FileNotFoundError):
    os.unlink(path)


def _digest(path: str) -> str:
  with open(path, "rb") as file:
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _is_still(path: str, before: os.stat_result) -> bool:
  """Returns whether a file was not changed while it was read."""
  try:
    now = os.stat(path)
  except OSError:
    return False
  names = ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
  return all(getattr(now, name) == getattr(before, name) for name in names)


def _documents(snapshot: Snapshot) -> dict[str, int]:
  """Returns a sum of the ids and digests of the documents of each file."""
  found: collections.Counter[str] = collections.Counter()
  for segment, live in zip(snapshot.segments, snapshot.live, strict=True):
    digests = np.ascontiguousarray(segment.digests[live]).view(np.uint64)
    sums = np.zeros(len(segment.files), np.uint64)
    np.add.at(sums, segment.files_D[live], (segment.hashes[live] ^ digests[:, 0]) * _MIX)
    for file, of_file in zip(segment.files, sums.tolist(), strict=True):
      found[file] = (found[file] + of_file) % 2**64
  return found
