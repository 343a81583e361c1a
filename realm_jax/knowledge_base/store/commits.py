"""Commits: numbered lists of what a knowledge base has, each written at once.

A commit is a small JSON file. It names segments, which never change, and the documents deleted from
each. Names of commits and segments have random parts, so no two files ever have the same one: what
has a known name is the file that was known. Whatever no commit names is left over from a killed
writer.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Callable, Collection
from typing import Literal, get_args

from absl import logging

from realm_jax.foundations import atomic_files, choices, json_fields, plain_files, text_files
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.index.words import postings

_FORMAT = f"11.{postings.FORMAT}"  # of commits and segments, and of the terms in these
_FOLDER, _SEGMENTS, _MODELS = "commits", "segments", "models"
MODEL_DIGITS = 16
CHECKPOINTS, VOCABULARY = "checkpoints", "vocabulary"  # of a model
_ID = "[0-9a-f]{16}"
_NAME = re.compile(rf"(\d{{9}})-({_ID})-({_ID})\.json")  # number, knowledge base, commit
_SEGMENT = re.compile(rf"\d{{9}}-{_ID}")
_MODEL = re.compile(rf"[0-9a-f]{{{MODEL_DIGITS}}}")
_LEFT = re.compile(rf"\.{_NAME.pattern}\..*")  # what a killed writer leaves of a commit
_PUBLISHED = rf"{_FOLDER}/{_NAME.pattern}"
PUBLISHED = re.compile(
  rf"{_PUBLISHED}|{_SEGMENTS}/{_SEGMENT.pattern}|{_MODELS}/{_MODEL.pattern}/(?s:.*)"
)
_NEW = DirectoryKind(name="new", files=())  # a name stands for its content
_OF_MODELS = ("encoder", "reader", "adapter", "answerability", "seen")  # settings
_OF_USE = ("answerability", "seen")  # which need past questions, and so are not published
KEPT = 2  # the newest, and the one that readers may be opening
_REMEMBERED = 100  # commits and changes before


DETECTED = ("auto",)
Ranking = Literal["words", "encoder", "fused"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(choices.Checked):
  """How documents become passages and are searched; they never change while there are documents.

  Attributes:
    languages: Languages of the documents as BCP 47 tags; "auto" detects them.
    passage_words: Words of a passage at most, unless one sentence has more.
    encoder: The model that embeds passages and questions; "" searches by words alone.
    ranking: What ranks passages if there is an encoder; it may change.
    reader: The model that answers questions, which may change; "" for none.
    adapter: What maps embeddings of questions before passages are ranked; "" for nothing.
    answerability: What tells whether an answer was found; "" for nothing.
    seen: The questions that encoder and adapter have learned from; "" for none.
    memory: Whether past questions move passages.
  """

  languages: tuple[str, ...] = DETECTED
  passage_words: choices.Count = 100
  encoder: str = ""
  ranking: Ranking = "fused"
  reader: str = ""
  adapter: str = ""
  answerability: str = ""
  seen: str = ""
  memory: bool = True

  def __post_init__(self):
    super().__post_init__()
    for name in {getattr(self, model) for model in _OF_MODELS} - {""}:
      _check_name(name, _MODEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentEntry:
  """A segment of a commit.

  Attributes:
    deleted: Rows of its documents that are deleted.
  """

  name: str
  num_documents: int
  num_passages: int
  deleted: tuple[int, ...] = ()

  def __post_init__(self):
    _check_name(self.name, _SEGMENT)
    if self.deleted and not 0 <= min(self.deleted) <= max(self.deleted) < self.num_documents:
      raise ValueError(f"rows are deleted that segment {self.name} does not have")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
  """A folder that files were added from.

  Attributes:
    path: Where it is, with a slash at the end.
    name: Where it was first.
    is_folder: Whether all files below it were given, rather than single ones in it.
  """

  path: str
  name: str
  is_folder: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
  """What a commit changed, as numbers of documents.

  Attributes:
    time: When, in seconds since 1970.
    ids: Some of the documents.
  """

  time: float
  added: int = 0
  updated: int = 0
  deleted: int = 0
  ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commit:
  """What a knowledge base has at one time.

  Attributes:
    base: Id of the knowledge base.
    id: Of this commit.
    ancestors: Ids of the commits before, newest first, as far as they are remembered.
    sources: Where files came from; documents have their numbers.
    history: The changes that led to it, newest first, as far as they are remembered.
    purged: Number of the commit from which on deleted documents are nowhere.
  """

  number: int
  settings: Settings
  base: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
  id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
  ancestors: tuple[str, ...] = ()
  segments: tuple[SegmentEntry, ...] = ()
  sources: tuple[Source, ...] = ()
  history: tuple[Change, ...] = ()
  purged: int = 0

  def __post_init__(self):
    _check_name(self.file, _NAME)

  @property
  def file(self) -> str:
    """The name of its file."""
    return f"{self.number:09d}-{self.base}-{self.id}.json"

  def after(self, *changes: Change, segments: tuple[SegmentEntry, ...]) -> "Commit":
    """Returns the next commit, which has these segments."""
    return dataclasses.replace(
      self,
      number=self.number + 1,
      id=secrets.token_hex(8),
      ancestors=(self.id, *self.ancestors)[:_REMEMBERED],
      segments=segments,
      history=(*changes, *self.history)[:_REMEMBERED],
    )

  def without(self, gone: Collection[str]) -> "Commit":
    """Returns it as the commit that purges, with a history without these documents."""
    history = tuple(
      dataclasses.replace(change, ids=tuple(id for id in change.ids if id not in gone))
      for change in self.history
    )
    return dataclasses.replace(self, history=history, purged=self.number)

  def new_segment(self) -> str:
    """Returns the name of a segment that the next commit adds."""
    return f"{self.number + 1:09d}-{secrets.token_hex(8)}"


def _check_name(name: str, pattern: re.Pattern[str]) -> None:
  if not pattern.fullmatch(name):
    raise ValueError(f"{name!r:.60} is no name in a knowledge base")


def segment_path(directory: str, name: str) -> str:
  """Returns the file of a segment."""
  return os.path.join(directory, _SEGMENTS, name)


def model_path(directory: str, name: str) -> str:
  """Returns the folder of a model, which is named by its digest."""
  return os.path.join(directory, _MODELS, name)


def write_model(directory: str, content: bytes, *, write: Callable[[str], None]) -> str:
  """Writes what was learned into a knowledge base; returns its name there.

  Args:
    content: What the name is a digest of.
    write: Writes the files into a directory.
  """
  name = hashlib.sha256(content).hexdigest()[:MODEL_DIGITS]
  path = model_path(directory, name)
  if not os.path.exists(path):
    with atomic_files.new_directory(path, kind=_NEW) as temporary:
      write(temporary)
  return name


def write_text(directory: str, file: str, content: str) -> str:
  """Writes a model that is one text into a knowledge base; returns its name there."""
  return write_model(
    directory,
    content.encode(),
    write=lambda folder: atomic_files.write_text(f"{folder}/{file}", content),
  )


def files(directory: str) -> list[str]:
  """Returns the names of all commits, the newest last.

  Raises:
    FileNotFoundError: If there is no knowledge base.
  """
  if found := _files(directory):
    return found
  raise FileNotFoundError(f"{directory} is no knowledge base; make one with `realm kb create`")


def _files(directory: str) -> list[str]:
  try:
    return sorted(filter(_NAME.fullmatch, os.listdir(os.path.join(directory, _FOLDER))))
  except (FileNotFoundError, NotADirectoryError):
    return []


def read_newest(directory: str) -> Commit:
  """Reads the newest commit that is whole.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If no commit can be read.
  """
  while True:
    names = files(directory)
    try:
      return _newest_of(directory, names)
    except FileNotFoundError:  # a writer has just deleted one, because there are newer ones
      if files(directory) == names:
        raise


def _newest_of(directory: str, names: list[str]) -> Commit:
  for name in reversed(names):
    try:
      fields = _read(directory, name)
      format = fields.pop("format")
      if format == _FORMAT:
        commit = json_fields.restored(Commit, fields)
        if commit.file != name:
          raise ValueError(f"it is {commit.file}")
        return commit
    except json_fields.WRONG as error:
      reason = json_fields.reason(error)
      logging.warning("skipped a damaged commit, %s: %s", _path(directory, name), reason)
      continue
    raise ValueError(
      f"{directory} has format {format} of another version, not {_FORMAT}; make one of its texts "
      "anew in another folder, or open it with that version"
    )
  raise ValueError(f"no commit of {directory} can be read; restore the folder from a backup")


def read_empty(directory: str) -> Commit | None:
  """Reads the newest commit where a knowledge base is about to be made; None if there is none.

  Raises:
    ValueError: If it has documents, or cannot be read.
  """
  if not _files(directory):
    return None
  newest = read_newest(directory)
  check_newest(directory, newest)
  if newest.segments:
    raise ValueError(f"{directory} is a knowledge base already; add to it, or give another folder")
  return newest


def check_newest(directory: str, commit: Commit) -> None:
  """Checks that no commit is newer than this one, so that a writer does not write over it."""
  newest = files(directory)[-1]
  if newest != commit.file:
    raise ValueError(
      f"commit {newest} of {directory} cannot be read, so nothing is written; use the version that "
      "wrote it, or restore the folder from a backup"
    )


def write(directory: str, commit: Commit) -> None:
  """Writes a commit after its segments."""
  content = json.dumps({"format": _FORMAT, **vars(commit)}, default=vars)
  os.stat(os.path.join(directory, _FOLDER))  # a folder that is gone is not made anew
  atomic_files.write_text(_path(directory, commit.file), content)


def needed(directory: str, commit: Commit) -> list[str]:
  """Returns the names of the files that a copy of a commit needs, its own last.

  Past questions are private and stay where they are, with what is known by them alone.
  """
  models = {getattr(commit.settings, model) for model in _OF_MODELS if model not in _OF_USE}
  models = sorted(models - {""})
  paths = [pathlib.Path(model_path(directory, model)) for model in models]
  paths = [path for model in paths for path in sorted(model.rglob("*")) if path.is_file()]
  paths += [pathlib.Path(segment_path(directory, segment.name)) for segment in commit.segments]
  paths.append(pathlib.Path(_path(directory, commit.file)))
  return [path.relative_to(directory).as_posix() for path in paths]


def check_published(address: str, commit: Commit, names: Collection[str]) -> int:
  """Checks that what is at an address, if anything, is an older commit; returns its number."""
  if not names:
    return commit.number
  other = "something else than a knowledge base"
  if found := next(filter(None, map(re.compile(_PUBLISHED).fullmatch, names)), None):
    number, age = int(found[1]), commit.number - int(found[1])
    lineage = (commit.id, *commit.ancestors)
    if found[2] != commit.base:
      other = "another knowledge base"
    elif age < 0:
      other = f"commit {number}, which is newer than commit {commit.number} here"
    elif age < len(lineage) and found[3] != lineage[age]:
      other = f"a commit {number} that did not lead to commit {commit.number} here"
    else:
      return number
  raise ValueError(f"{address} has {other}; give another address, or delete what is there")


def remove_unnamed(directory: str, *, keep: int = KEPT) -> None:
  """Removes old commits, and what no other commit names; only for who holds the lock.

  Args:
    keep: Commits that stay, the newest ones.
  """
  kept, segments, models = _files(directory)[-keep:], set(), set()
  for name in kept:
    with contextlib.suppress(*json_fields.WRONG):
      fields = _read(directory, name)
      segments |= {segment["name"] for segment in fields["segments"]}
      models |= {fields["settings"].get(model) for model in _OF_MODELS}
  for folder, pattern, names in (
    (_FOLDER, re.compile(f"{_NAME.pattern}|{_LEFT.pattern}"), kept),
    (_SEGMENTS, _SEGMENT, segments),
    (_MODELS, _MODEL, models),
  ):
    path = os.path.join(directory, folder)
    with contextlib.suppress(FileExistsError):
      os.mkdir(path)
    for name in filter(pattern.fullmatch, {*os.listdir(path)}.difference(names)):
      found = os.path.join(path, name)
      shutil.rmtree(found) if folder == _MODELS else os.unlink(found)


def _read(directory: str, name: str) -> dict:
  with plain_files.open_plain(_path(directory, name)) as file:
    return text_files.parse_json(file.read())


def _path(directory: str, name: str) -> str:
  return os.path.join(directory, _FOLDER, name)
