"""The past questions in the folder of a knowledge base, and their trials."""

import dataclasses
import glob
import itertools
import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO

from absl import logging

from realm_jax.foundations import atomic_files, json_fields, plain_files, text_files
from realm_jax.knowledge_base.learning.past_questions import PastQuestion, normalized
from realm_jax.knowledge_base.learning.use_memory import FILE, Memory, Trial
from realm_jax.knowledge_base.store.snapshot import Snapshot

_PRIVATE = 0o600  # what somebody asked is nobody else's business
_SPARE_LINES = 1000  # that are replaced by later ones, before a file is written anew


class MemoryFile:
  """The past questions in a folder; safe to use from several threads.

  A line of JSON has a question, which counts until one with the same question follows, and what was
  tried with it: trials of this one and of others. Lines are appended and flushed to disk; one that
  a killed process left unfinished is passed over, and removed before the next. Only who holds the
  lock of the folder may write.
  """

  def __init__(self, directory: str):
    self._path = os.path.join(directory, FILE)
    self._reading = threading.Lock()
    self._read: tuple[tuple[int, int], int, int] | None = None  # file, size and time
    self._file: IO[bytes] | None = None  # stays open, so that no other file gets its inode
    self._clean = ""  # the commit for which nothing is said about documents that are gone
    self._forget()

  def _forget(self) -> None:
    if self._file is not None:
      self._file.close()
      self._file = None
    self._end = self._num_lines = 0
    self._spans: dict[str, tuple[int, int]] = {}  # where the newest line of each question is
    self._memory = Memory()

  def newest(self) -> Memory:
    """Returns the newest memory."""
    if self._stat() != self._read:
      with self._reading:
        now = self._stat()
        if not now or not self._read or now[0] != self._read[0] or now[1] < self._end:
          self._forget()
        if now:
          self._read_on()
        self._read = now
    return self._memory

  def _check_same(self, stat: os.stat_result) -> None:
    """Checks that a file is the one that was read, so that nothing is written to another."""
    same = (stat.st_dev, stat.st_ino) == self._read[0] if self._read else not stat.st_size
    if not same:
      raise OSError(f"{self._path} was replaced meanwhile; nothing was written to it, try again")

  def _stat(self) -> tuple[tuple[int, int], int, int] | None:
    try:
      stat = os.stat(self._path)
    except FileNotFoundError:
      return None
    return (stat.st_dev, stat.st_ino), stat.st_size, stat.st_mtime_ns

  def _read_on(self) -> None:
    """Reads the lines after those that were read, as far as they are whole."""
    records: dict[str, PastQuestion] = {}
    trials: dict[str, Trial] = {}
    for start, line in self._lines():
      try:
        content = text_files.parse_json(line)
        made = content.pop("trials", {})
        made = {key: json_fields.restored(Trial, each) for key, each in made.items()}
        record = json_fields.restored(PastQuestion, content) if content else None
        if record and (key := record.key):
          records.pop(key, None)  # the newest is the last
          records[key], self._spans[key] = record, (start, start + len(line) + 1)
          trials.pop(key, None)
        trials |= made
      except json_fields.WRONG as error:
        logging.warning("skipped a damaged line of %s: %s", self._path, error)
    self._memory = self._memory.changed(records.values())
    for key, trial in trials.items():
      self._memory.add_trial(key, trial)

  def _lines(self) -> Iterator[tuple[int, bytes]]:
    """Yields where lines begin after those that were read, as far as they are whole."""
    for line in self._content(self._end).split(b"\n")[:-1]:
      start, self._end = self._end, self._end + len(line) + 1
      self._num_lines += 1
      yield start, line

  def _content(self, start: int) -> bytes:
    if self._file is None:
      self._file = plain_files.open_plain(self._path)
    descriptor = self._file.fileno()
    # Without a position, which forked processes would share.
    return os.pread(descriptor, os.fstat(descriptor).st_size - start, start)

  def write(
    self, records: Iterable[PastQuestion], *, trials: Mapping[str, Trial] | None = None
  ) -> None:
    """Adds past questions, in place of what was known of the same ones, and trials by key."""
    memory = self.newest()
    lines = [*map(_line, records)]
    if trials:
      lines[-1:] = [_with_trials(lines[-1] if lines else b"{}\n", trials)]
    with plain_files.open_plain(self._path, "ab", permissions=_PRIVATE) as file:
      self._check_same(os.fstat(file.fileno()))
      file.truncate(self._end)
      file.write(b"".join(lines))
      atomic_files.close(file)
    if not self._read:
      atomic_files.sync_directory(os.path.dirname(self._path))
    if self._num_lines + len(lines) > 4 * len(memory) + _SPARE_LINES:
      self._rewrite({})

  def forget(self, questions: Iterable[str]) -> int:
    """Removes past questions, and returns how many they are; see `KnowledgeBase.forget`."""
    memory = self.newest()
    keys = {normalized(question): question for question in questions}
    if unknown := [question for key, question in keys.items() if memory.get(key) is None]:
      raise ValueError(f"no question {unknown[0]!r:.60} is remembered; none was forgotten")
    self._rewrite(dict.fromkeys(keys))
    return len(keys)

  def about(self, snapshot: Snapshot) -> list[PastQuestion]:
    """Returns past questions without what was said about documents that are gone."""
    memory = self.newest()
    ids = [*memory.documents]
    gone = {id for id, place in zip(ids, snapshot.find(ids), strict=True) if place is None}
    return [*filter(None, (past.without(gone) for past in memory.records.values()))]

  def purge(self) -> None:
    """Removes the lines that others have replaced."""
    if self._stat():
      self._rewrite({})

  def drop_missing(self, snapshot: Snapshot, deleted: Collection[str] | None = None) -> None:
    """Removes what was said about documents that are gone.

    Args:
      deleted: Those that were deleted just now. None looks for all, unless that was done before,
        because a process may have been killed before it dropped what it had deleted.
    """
    memory, commit = self.newest(), snapshot.commit.file
    if deleted is None:
      deleted = () if self._clean == commit else memory.documents
    ids, self._clean = [*deleted], ""
    gone = {id for id, place in zip(ids, snapshot.find(ids), strict=True) if place is None}
    if about := memory.about(gone):
      self._rewrite({past.key: past.without(gone) for past in about})
    self._clean = commit

  def _rewrite(self, changes: Mapping[str, PastQuestion | None]) -> None:
    """Writes the file anew, with other questions in place of some, and without those of None."""
    memory = self.newest()
    folder, name = os.path.split(self._path)
    for left in glob.glob(os.path.join(glob.escape(folder), f".{name}.*")):
      os.unlink(left)  # by a killed process
    content = self._content(0)
    lines: dict[str, bytes] = {}
    for key in memory.records:
      line, trial = content[slice(*self._spans[key])], memory.trial(key)
      if key in changes:
        if (past := changes[key]) is None:
          continue
        before, trial = json.loads(line), None
        embedding = {name: before[name] for name in ("encoder", "embedding")}
        line = _line(dataclasses.replace(past, **embedding))
      lines[key] = _with_trials(line, {} if trial is None else {key: trial})
    self._check_same(os.stat(self._path))
    if lines:
      atomic_files.write_bytes(self._path, b"".join(lines.values()), mode=_PRIVATE)
    else:
      os.unlink(self._path)
      atomic_files.sync_directory(folder)
    with self._reading:
      self._forget()
      gone = [key for key, past in changes.items() if past is None]
      self._memory = memory.changed((), gone=gone)
      for past in filter(None, changes.values()):
        self._memory.replace(past)
      ends = [0, *itertools.accumulate(map(len, lines.values()))]
      self._spans = dict(zip(lines, itertools.pairwise(ends), strict=True))
      self._end, self._num_lines, self._read = ends[-1], len(lines), self._stat()


_TRIALS = b', "trials": '  # in no string, where a quotation mark follows a backslash


def _line(record: PastQuestion) -> bytes:
  return json.dumps(json_fields.as_json(record)).encode() + b"\n"


def _with_trials(line: bytes, trials: Mapping[str, Trial]) -> bytes:
  """Returns the line of a question with other trials."""
  content = line.partition(_TRIALS)[0].removesuffix(b"}\n")
  if not trials:
    return content + b"}\n"
  made = json.dumps({key: json_fields.as_json(trial) for key, trial in trials.items()}).encode()
  return content + (_TRIALS if content != b"{" else _TRIALS[2:]) + made + b"}\n"
