"""Sources: the folders that files of a knowledge base were added from.

A document of a file is known by its source and the path of its file below that, wherever the folder
is now. So two folders may have files of one name, a folder may move, and only what is missing from
the files that were given is deleted. What is no file, such as a record in memory, has no source.
"""

import collections
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from realm_jax.corpus import input_files, reading
from realm_jax.corpus.documents import BadRecords, Document
from realm_jax.corpus.input_files import InputFile, printable
from realm_jax.foundations import object_store
from realm_jax.knowledge_base.store.commits import Source
from realm_jax.knowledge_base.store.segment import content_digests
from realm_jax.knowledge_base.store.snapshot import Place, Snapshot

_REVISION = re.compile(r"(?<=/snapshots/)[0-9a-f]{40}")  # of the hub's cache
_SAMPLE = 32  # files of a folder that may have moved


class Sources:
  """The sources of a knowledge base, to which those of a change are added.

  Args:
    before: What the knowledge base has.
    outside: A folder with files that are not read.

  Attributes:
    known: All sources; documents have their numbers.
    unchanged: What files are known by whose documents stay without being read.
  """

  def __init__(self, before: Snapshot, *, outside: str):
    self.known = [*before.commit.sources]
    self._before, self._outside = before, os.path.realpath(outside) + os.sep
    self._numbers = self._numbered()
    self.unchanged: set[str] = set()
    self._keys: dict[str, str] = {}  # of files, by path
    self._given: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    self._ids: dict[str, str] = {}  # the file of each

  def files(self, paths: Sequence[str], bad: BadRecords) -> list[InputFile]:
    """Returns the files of paths and patterns, each named by its path below its source.

    Args:
      bad: Counts and names what is skipped.
    """
    found: dict[str, InputFile] = {}  # by real path: links make no second document
    for path in map(input_files.local, paths):
      if object_store.is_remote(path):
        self._given.append(((), _parts(path)))
      else:
        start, rest = input_files.literal(path)
        self._given.append((_parts(_real(start)), _parts(rest)))
      files = input_files.find_files([path], bad=bad, outside=self._outside)[0]
      files = [f for f in files if not os.path.realpath(f.path).startswith(self._outside)]
      for file in self._located(files, is_folder=[path] != [f.path for f in files]):
        found.setdefault(os.path.realpath(file.path), file)
    return [*found.values()]

  def key(self, file: InputFile) -> str:
    """Returns what documents of a file are known by."""
    return self._keys[file.path]

  def were_given(self, *, unread: Sequence[str] = ()) -> Callable[[str], bool]:
    """Returns a function that tells whether a document's file is one of those given, or was where
    they are; a document of no file is if none were given.

    Args:
      unread: Files and folders that could not be read, so that nobody knows what is in them.
    """
    roots = [_parts(_real(source.path)) for source in self.known]
    unknown = {_parts(_real(path)) for path in unread}
    whole = {start for start, rest in self._given if not rest}
    patterns = [(start, rest) for start, rest in self._given if rest]

    def was_given(key: str) -> bool:
      if not key or not self._given:
        return bool(key) == bool(self._given)
      number, _, name = key.partition("/")
      path = roots[int(number)] + _parts(name)
      if any(path[:size] in unknown for size in range(len(path) + 1)):
        return False
      return any(path[:size] in whole for size in range(len(path) + 1)) or any(
        path[: len(start)] == start and input_files.matches(path[len(start) :], rest)
        for start, rest in patterns
      )

    return was_given

  def named(self, documents: Sequence[Document], *, broken: Collection[str]) -> list[Document]:
    """Returns documents with the ids that they have in the knowledge base.

    One that its file names is named by the path below its source; if another file's has that, with
    the name of the source before it, and if there are two of these, with the whole path.

    Raises:
      ValueError: If two have one id.
    """
    choices = [self._choices(document) for document in documents]
    there = self._there(itertools.chain.from_iterable(choices))
    named = []
    for document, ids in zip(documents, choices, strict=True):
      if len(ids) > 1:
        ids = [id for id in ids if id not in self._ids] or ids
        free = [id for id in ids if id not in there] or ids
        own = [id for id in ids if id in there and self._before.file(there[id]) == document.file]
        document = dataclasses.replace(document, id=(own or free)[0])
      place = there.get(document.id)
      file = self._before.file(place) if place else None
      stays = file in self.unchanged and file not in broken
      other = self._ids.get(document.id, file if stays else None)
      if other is not None:
        files = {each.partition("/")[2] for each in (document.file, other)} - {""}
        where = f", of {' and '.join(sorted(files))}" if files else ""
        raise ValueError(f"two documents have the id {document.id!r}{where}; give each its own")
      self._ids[document.id] = document.file
      named.append(document)
    return named

  def _choices(self, document: Document) -> list[str]:
    """Returns the ids that a document may have, one if its record has it."""
    number, _, name = document.file.partition("/")
    if not name or name not in (document.id, document.id.rpartition(":")[0]):
      return [document.id]
    folder = printable(self.known[int(number)].name)
    return [document.id, f"{os.path.basename(folder[:-1])}/{document.id}", folder + document.id]

  def _there(self, ids: Iterable[str]) -> dict[str, Place]:
    ids = [*dict.fromkeys(ids)]
    return {id: p for id, p in zip(ids, self._before.find(ids), strict=True) if p is not None}

  def _located(self, files: Sequence[InputFile], *, is_folder: bool) -> list[InputFile]:
    """Returns files with their paths below sources, of which one may be new."""
    if not files:
      return []
    root = _absolute(files[0].path).removesuffix(files[0].name)
    sources = [self._containing(root, file.name) for file in files]
    if None in sources:
      self._add(root, is_folder=is_folder)
      sources = [self._containing(root, file.name) for file in files]
    located = []
    for file, source in zip(files, sources, strict=True):
      assert source is not None, "its root is a source"
      located.append(dataclasses.replace(file, name=source[1]))
      self._keys[file.path] = f"{source[0]}/{located[-1].id}"
    return located

  def _containing(self, root: str, name: str) -> tuple[int, str] | None:
    """Returns the first source that has a file, and the path below it."""
    found = []
    for path in {_stable(root + name), _stable(_real(root) + "/" + name)}:
      for end in (match.end() for match in re.finditer("/", path)):
        number = self._numbers.get(path[:end])
        if number is not None and (self.known[number].is_folder or "/" not in path[end:]):
          found.append((number, path[end:]))
    return min(found, default=None)

  def _add(self, root: str, *, is_folder: bool) -> None:
    number = next((n for n, source in enumerate(self.known) if source.path == root), None)
    number = self._moved(root) if number is None else number
    if number is None:
      self.known.append(Source(path=root, name=root, is_folder=is_folder))
    else:
      source = self.known[number]
      self.known[number] = dataclasses.replace(
        source, path=root, is_folder=is_folder or source.is_folder
      )
    self._numbers = self._numbered()

  def _numbered(self) -> dict[str, int]:
    """Returns the first source at each path."""
    numbers: dict[str, int] = {}
    for number, source in enumerate(self.known):
      for path in (source.path, _real(source.path) + "/"):
        numbers.setdefault(_stable(path), number)
    return numbers

  def _moved(self, root: str) -> int | None:
    """Returns the source whose files are not where they were, but here, most of them the same."""
    files: dict[int, list[str]] = collections.defaultdict(list)
    for segment, live in zip(self._before.segments, self._before.live, strict=True):
      for row in np.unique(segment.files_D[live]).tolist():
        number, _, name = segment.files[row].partition("/")
        if name:
          files[int(number)].append(name)
    for number, names in files.items():
      sample, path = names[:: -(-len(names) // _SAMPLE)], self.known[number].path
      if object_store.is_remote(path) or any(os.path.lexists(path + name) for name in sample):
        continue
      if 2 * sum(self._is_same(f"{number}/{name}", root + name) for name in sample) >= len(sample):
        return number
    return None

  def _is_same(self, key: str, path: str) -> bool:
    """Returns whether the first document of a file is the one that is known."""
    file = InputFile(
      path=path, name=key.partition("/")[2], format=input_files.format_of(path) or "text"
    )
    reader = reading.DocumentReader([file])
    document = next((record for record in reader if isinstance(record, Document)), None)
    if document is None:
      return False
    there = self._there(self._choices(dataclasses.replace(document, file=key)))
    digest = content_digests([document])[0]
    return any(
      self._before.file(place) == key and np.array_equal(self._before.digest(place), digest)
      for place in there.values()
    )


def _absolute(path: str) -> str:
  return path if object_store.is_remote(path) else os.path.abspath(path)


def _real(path: str) -> str:
  """Returns a path without links, except a file that is one."""
  if object_store.is_remote(path):
    return path.rstrip("/")
  if os.path.isdir(path) or not path:
    return os.path.realpath(path)
  folder, name = os.path.split(path.rstrip("/"))
  return os.path.join(os.path.realpath(folder), name)


def _stable(path: str) -> str:
  """Returns a path that is the same for all revisions of a dataset of the hub."""
  return _REVISION.sub("", path)


def _parts(path: str) -> tuple[str, ...]:
  return tuple(map(printable, filter(None, _stable(path).split("/"))))
