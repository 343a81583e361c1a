"""Commits: numbered lists of what a knowledge base has, each written at once.

A commit is a small JSON file. It names segments, which never change, and the documents deleted from
each. Whatever no commit names is left over from a killed writer.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Collection
from typing import Literal, get_args

from absl import logging

from realm_jax.foundations import atomic_files, json_fields
from realm_jax.foundations.output_kinds import DirectoryKind

# Segments of format 2 and 3 have no cells; those of any before 5 have other terms.
_FORMAT, _READ = 5, (2, 3, 4, 5)
_FOLDER, _SEGMENTS, _MODELS = "commits", "segments", "models"
MODEL_DIGITS = 16
CHECKPOINTS, VOCABULARY = "checkpoints", "vocabulary"  # of a model
_NAME = re.compile(r"(\d{9})\.json")
_PUBLISHED = re.compile(rf"{_FOLDER}/{_NAME.pattern}")
_OURS = re.compile(r"\.?\d{9}(\.json.*|-\d+)")  # what a killed writer leaves, unfinished or not
_MODEL = re.compile(rf"[0-9a-f]{{{MODEL_DIGITS}}}")
_OF_MODELS = ("encoder", "reader", "adapter", "answerability")  # settings
_KEPT = 2  # the newest, and the one that readers may be opening
# What reading something other than a commit raises.
_WRONG = (ValueError, TypeError, LookupError, AttributeError)


DETECTED = ("auto",)
Ranking = Literal["words", "encoder", "fused"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """How documents become passages and are searched; they never change while there are documents.

  Attributes:
    languages: Languages of the documents as BCP 47 tags; "auto" detects them.
    passage_words: Words of a passage at most, unless one sentence has more.
    encoder: The model that embeds passages and questions; "" searches by words alone.
    ranking: What ranks passages if there is an encoder; it may change.
    reader: The model that answers questions, which may change; "" for none.
    adapter: What maps embeddings of questions before passages are ranked; "" for nothing.
    answerability: What tells whether an answer was found; "" for nothing.
  """

  languages: tuple[str, ...] = DETECTED
  passage_words: int = 100
  encoder: str = ""
  ranking: Ranking = "fused"
  reader: str = ""
  adapter: str = ""
  answerability: str = ""


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
    folders: Folders of the files that were given, with a slash at the end.
    history: The changes that led to it, newest first, as far as they are remembered.
  """

  number: int
  settings: Settings
  segments: tuple[SegmentEntry, ...] = ()
  folders: tuple[str, ...] = ()
  history: tuple[Change, ...] = ()

  def new_segment(self, place: int) -> str:
    """Returns the name of a segment that the next commit adds; no commit has had it before."""
    return f"{self.number + 1:09d}-{place}"


def segment_path(directory: str, name: str) -> str:
  """Returns the file of a segment."""
  return os.path.join(directory, _SEGMENTS, name)


def model_path(directory: str, name: str) -> str:
  """Returns the folder of a model, which is named by its digest."""
  return os.path.join(directory, _MODELS, name)


def write_model(
  directory: str, content: bytes, *, kind: DirectoryKind, write: Callable[[str], None]
) -> str:
  """Writes what was learned into a knowledge base; returns its name there.

  Args:
    content: What the name is a digest of.
    write: Writes the files into a directory.
  """
  name = hashlib.sha256(content).hexdigest()[:MODEL_DIGITS]
  path = model_path(directory, name)
  if not os.path.exists(path):
    with atomic_files.new_directory(path, kind=kind) as temporary:
      write(temporary)
  return name


def newest_number(directory: str) -> int | None:
  """Returns the number of the newest commit, or None."""
  return max(_numbers(directory), default=None)


def has_newer(directory: str, number: int) -> bool:
  """Returns whether there are commits after this one, which had the next number."""
  there = os.path.exists
  return there(_path(directory, number + 1)) or not there(_path(directory, number))


def read_newest(directory: str) -> Commit | None:
  """Reads the newest commit that is whole; None if there is no commit."""
  numbers = sorted(_numbers(directory), reverse=True)
  for number in numbers:
    with contextlib.suppress(FileNotFoundError):  # a writer has just deleted it
      with open(_path(directory, number), encoding="utf-8") as file:
        content = file.read()
      try:
        fields = json.loads(content)
        format = fields.pop("format")
        if format in _READ:
          return json_fields.restored(Commit, fields)
      except _WRONG as error:
        logging.warning("skipped a damaged commit, %s: %s", _path(directory, number), error)
        continue
      raise ValueError(f"{directory} has format {format} of another version, not {_FORMAT}")
  if numbers:
    raise ValueError(f"no commit of {directory} can be read; restore the folder from a backup")
  return None


def check_newest(directory: str, commit: Commit | None) -> None:
  """Checks that no commit is newer than this one, so that a writer does not write over it."""
  newest = newest_number(directory)
  if newest != (commit and commit.number):
    raise ValueError(
      f"commit {newest} of {directory} cannot be read, so nothing is written; use the version that "
      "wrote it, or restore the folder from a backup"
    )


def write(directory: str, commit: Commit) -> None:
  """Writes a commit after its segments."""
  content = json.dumps({"format": _FORMAT, **vars(commit)}, default=vars)
  atomic_files.write_text(_path(directory, commit.number), content)


def files(directory: str, commit: Commit) -> list[str]:
  """Returns the names of the files that a commit needs, its own last."""
  models = sorted({getattr(commit.settings, model) for model in _OF_MODELS} - {""})
  paths = [pathlib.Path(model_path(directory, model)) for model in models]
  paths = [path for model in paths for path in sorted(model.rglob("*")) if path.is_file()]
  paths += [pathlib.Path(segment_path(directory, segment.name)) for segment in commit.segments]
  paths.append(pathlib.Path(_path(directory, commit.number)))
  return [path.relative_to(directory).as_posix() for path in paths]


def check_published(address: str, commit: Commit, names: Collection[str]) -> None:
  """Checks that what is at an address, if anything, is an older commit."""
  numbers = [int(match[1]) for match in map(_PUBLISHED.fullmatch, names) if match]
  if names and not numbers:
    raise ValueError(f"{address} has something else than a knowledge base; give another address")
  if numbers and numbers[0] > commit.number:
    raise ValueError(
      f"{address} has commit {numbers[0]}, which is newer than commit {commit.number} here; give "
      "another address, or delete what is there"
    )


def remove_unnamed(directory: str) -> None:
  """Removes old commits, and what no other commit names; only for who holds the lock."""
  numbers = sorted(_numbers(directory))
  named, models = set(), set()
  for number in numbers[-_KEPT:]:
    with contextlib.suppress(*_WRONG), open(_path(directory, number), encoding="utf-8") as file:
      fields = json.load(file)
      named |= {segment["name"] for segment in fields["segments"]}
      models |= {fields["settings"].get(model) for model in _OF_MODELS}
  kept = {os.path.basename(_path(directory, number)) for number in numbers[-_KEPT:]}
  for folder, names in ((_FOLDER, kept), (_SEGMENTS, named)):
    path = os.path.join(directory, folder)
    os.makedirs(path, exist_ok=True)
    for name in filter(_OURS.fullmatch, set(os.listdir(path)) - names):
      os.unlink(os.path.join(path, name))
  path = os.path.join(directory, _MODELS)
  if os.path.exists(path):
    for name in filter(_MODEL.fullmatch, set(os.listdir(path)) - models):
      shutil.rmtree(os.path.join(path, name))


def _path(directory: str, number: int) -> str:
  return os.path.join(directory, _FOLDER, f"{number:09d}.json")


def _numbers(directory: str) -> list[int]:
  try:
    names = os.listdir(os.path.join(directory, _FOLDER))
  except (FileNotFoundError, NotADirectoryError):
    return []
  return [int(match[1]) for match in map(_NAME.fullmatch, names) if match]
