"""The past questions in the folder of a knowledge base, and their trials."""

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from absl import logging

from realm_jax.foundations import atomic_files, json_fields, plain_files, text_files
from realm_jax.knowledge_base.learning.past_questions import PastQuestion, normalized
from realm_jax.knowledge_base.learning.use_memory import FILE, Memory, Trial
from realm_jax.knowledge_base.store.snapshot import Snapshot

_PRIVATE = 0o600  # what somebody asked is nobody else's business
_SPARE_LINES = 1000  # that are replaced by later ones, before a file is written anew
_TRIAL_OF, _REMOVED = "trial_of", "removed"


class _Line(NamedTuple):
  """A line about a question: what was said about it, or a trial of it."""

  key: str
  is_question: bool
  start: int
  end: int  # without the line feed


class MemoryFile:
  """The past questions in a folder; safe to use from several threads.

  A line of JSON has a question, which counts until one with the same question follows, or a trial
  of one, or says where lines begin that were removed. Spaces are written over these; if the writer
  was killed before, whoever reads the file next does it. Lines are appended and flushed to disk;
  one that a killed process left unfinished is passed over, and removed before the next. Only who
  holds the lock of the folder may add lines.
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
    self._lines: dict[int, _Line] = {}  # by where they begin, also those that say nothing
    self._of_question: dict[str, list[_Line]] = {}
    self._removed: list[_Line] = []  # whose content may still be there
    self._memory = Memory()

  def newest(self) -> Memory:
    """Returns the newest memory."""
    if self._stat() != self._read:
      with self._reading:
        now = self._stat()
        if not now or not self._read or now[0] != self._read[0] or now[1] < self._end:
          self._forget()
        try:
          if now:
            self._read_on()
        except FileNotFoundError:  # another process has just forgotten all
          now = None
          self._forget()
        self._read = now
        with contextlib.suppress(OSError):  # a change says why it cannot
          self._erase()  # what a killed process has not
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
    gone: set[str] = set()
    for start, line in self._new_lines():
      self._lines[start] = _Line("", False, start, start + len(line))  # which may be half erased
      try:
        content = text_files.parse_json(line)
        for key in filter(None, map(self._remove, content.pop(_REMOVED, ()))):
          records.pop(key, None)
          trials.pop(key, None)
          gone.add(key)
        if (key := content.pop(_TRIAL_OF, None)) is not None:
          trial = json_fields.restored(Trial, content)
          if key in self._of_question:
            trials[key] = trial
            self._add(_Line(key, False, start, start + len(line)))
        elif content and (key := (record := json_fields.restored(PastQuestion, content)).key):
          records.pop(key, None)  # the newest is the last
          trials.pop(key, None)
          records[key] = record
          self._add(_Line(key, True, start, start + len(line)))
      except json_fields.WRONG as error:
        reason = json_fields.reason(error)
        logging.warning("skipped a damaged line of %s: %s", self._path, reason)
    if records or gone:
      gone = {key for key in gone if self._memory.get(key) is not None}
      self._memory = self._memory.changed(records.values(), gone=gone)
    for key, trial in trials.items():
      self._memory.add_trial(key, trial)

  def _add(self, line: _Line) -> None:
    self._lines[line.start] = line
    self._of_question.setdefault(line.key, []).append(line)

  def _remove(self, start: int) -> str | None:
    """Takes a line as removed; returns its question if nothing else was said about that."""
    if (line := self._lines.get(start)) is None:
      return None
    left = [one for one in self._of_question.pop(line.key, ()) if one is not line]
    if said := any(one.is_question for one in left):
      self._of_question[line.key] = left
    for one in [line] if said else [line, *left]:
      del self._lines[one.start]
      self._removed.append(one)
    return None if said else line.key

  def _newest_lines(self, key: str) -> list[_Line]:
    """Returns the line that counts of a question, and that of its trial if there was one since."""
    lines = self._of_question[key]
    place = max(place for place, line in enumerate(lines) if line.is_question)
    return [lines[place], *lines[place + 1 :][-1:]]

  def _new_lines(self) -> Iterator[tuple[int, bytes]]:
    """Yields where lines begin after those that were read, as far as they are whole."""
    for line in self._content(self._end).split(b"\n")[:-1]:
      start, self._end = self._end, self._end + len(line) + 1
      self._num_lines += 1
      if not line.isspace():
        yield start, line

  def _content(self, start: int, end: int | None = None) -> bytes:
    if self._file is None:
      self._file = plain_files.open_plain(self._path)
    descriptor = self._file.fileno()
    # Without a position, which forked processes would share.
    return os.pread(descriptor, (end or os.fstat(descriptor).st_size) - start, start)

  def write(self, records: Iterable[PastQuestion], trials: Mapping[str, Trial]) -> None:
    """Adds past questions, in place of what was known of the same ones, and trials by key."""
    self.newest()
    self._append({record.key: record for record in records}, trials, removed=())

  def forget(self, questions: Iterable[str]) -> int:
    """Removes past questions, and returns how many they are; see `KnowledgeBase.forget`."""
    memory = self.newest()
    keys = {normalized(question): question for question in questions}
    if unknown := [question for key, question in keys.items() if memory.get(key) is None]:
      raise ValueError(f"no question {unknown[0]!r:.60} is remembered; none was forgotten")
    self.replace(dict.fromkeys(keys), {})
    return len(keys)

  def replace(
    self, changes: Mapping[str, PastQuestion | None], trials: Mapping[str, Trial]
  ) -> None:
    """Puts others in the place of past questions, none for None, and leaves no word of these."""
    self.newest()
    records, removed = {}, []
    for key, past in changes.items():
      removed += [line.start for line in self._of_question[key]]
      if past is not None:
        newest, *_ = self._newest_lines(key)
        before = json.loads(self._content(newest.start, newest.end))
        embedding = {name: before[name] for name in ("encoder", "embedding")}
        records[key] = dataclasses.replace(past, **embedding)
    self._append(records, trials, removed=removed)

  def about(self, snapshot: Snapshot) -> list[PastQuestion]:
    """Returns past questions, the newest last, without what was said about documents now gone."""
    memory = self.newest()
    gone = snapshot.missing(memory.documents)
    kept = filter(None, (past.without(gone) for past in memory.records.values()))
    return sorted(kept, key=lambda past: past.time)

  def purge(self) -> None:
    """Removes the lines that others have replaced."""
    if self._stat():
      self._rewrite()

  def drop_missing(
    self,
    snapshot: Snapshot,
    deleted: Collection[str] | None = None,
    moved: Mapping[str, str] | None = None,
  ) -> None:
    """Removes what was said about documents that are gone.

    Args:
      deleted: Those that were deleted just now. None looks for all, unless that was done before,
        because a process may have been killed before it dropped what it had deleted.
      moved: New ids of some, to which it goes.
    """
    memory, commit = self.newest(), snapshot.commit.file
    if deleted is None:
      deleted = () if self._clean == commit else memory.documents
    self._clean = ""
    if about := memory.about(gone := snapshot.missing(deleted)):
      self.replace({past.key: past.moved(moved or {}).without(gone) for past in about}, {})
    self._clean = commit

  def _append(
    self,
    records: Mapping[str, PastQuestion],
    trials: Mapping[str, Trial],
    *,
    removed: Sequence[int],
  ) -> None:
    """Writes lines after those that are there, and erases those that are removed."""
    lines = [json_fields.as_json(past) for past in records.values()]
    lines += [{_REMOVED: removed}] if removed else []
    for key, trial in trials.items():
      if key in records or key in self._of_question:
        lines.append({_TRIAL_OF: key, **json_fields.as_json(trial)})
    with plain_files.open_plain(self._path, "ab", permissions=_PRIVATE) as file:
      self._check_same(os.fstat(file.fileno()))
      file.truncate(self._end)
      file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
      atomic_files.close(file)
    if not self._read:
      atomic_files.sync_directory(os.path.dirname(self._path))
    memory = self.newest()
    self._erase()
    if not len(memory) or self._num_lines > 4 * len(memory) + _SPARE_LINES:
      self._rewrite()

  def _erase(self) -> None:
    """Writes spaces over the lines that were removed."""
    if not self._removed:
      return
    with plain_files.open_plain(self._path, "r+b") as file:
      self._check_same(os.fstat(file.fileno()))
      for line in self._removed:
        file.seek(line.start)
        file.write(b" " * (line.end - line.start))
      atomic_files.close(file)
    self._removed.clear()

  def _rewrite(self) -> None:
    """Writes the file anew, with the newest lines of each question alone."""
    memory = self.newest()
    atomic_files.remove_unfinished(self._path)
    kept = sorted(
      (line for key in self._of_question for line in self._newest_lines(key)),
      key=lambda line: line.start,
    )
    content = self._content(0)
    lines = [content[line.start : line.end + 1] for line in kept]
    self._check_same(os.stat(self._path))
    if lines:
      atomic_files.write_bytes(self._path, b"".join(lines), mode=_PRIVATE)
    else:
      os.unlink(self._path)
      atomic_files.sync_directory(os.path.dirname(self._path))
    with self._reading:
      self._forget()
      self._memory, self._num_lines = memory, len(kept)
      for line, written in zip(kept, lines, strict=True):
        self._add(line._replace(start=self._end, end=self._end + len(written) - 1))
        self._end += len(written)
      self._read = self._stat()
