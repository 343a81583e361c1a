"""What may stand where a job writes: nothing, or an earlier result of the same kind.

A kind of output is recognised by its files, so a job replaces its own results, those of earlier
versions as well. Anything else belongs to the user and is refused.
"""

import contextlib
import dataclasses
import fnmatch
import os
import re
from collections.abc import Iterator

from realm_jax.foundations import object_store

UNFINISHED = ".unfinished."  # in names of directories that jobs are about to finish
_START = 4096  # characters of a file that tell its kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectoryKind:
  """A kind of directory.

  Patterns are paths below the directory. One that ends with "/" matches every file in a folder.

  Attributes:
    name: What it is, for messages.
    files: Patterns of the files that it may have.
    marks: Patterns; at least one must match a file. Empty if any of `files` will do.
    shared: Whether the user may keep other files there, which are never written.
  """

  name: str
  files: tuple[str, ...]
  marks: tuple[str, ...] = ()
  shared: bool = False

  def check(self, path: str | os.PathLike) -> None:
    """Checks that a directory is missing, empty or of this kind."""
    remote = object_store.is_remote(path)
    if not remote and object_store.absolute(path).is_file():
      raise refusal(path, f"is a file, not {self.name}")
    first, is_marked = "", False
    for file in _files_below(path):
      if _is_ours(file):
        continue
      if _matches(file, self.files):
        first = first or file
        is_marked = is_marked or _matches(file, self.marks or self.files)
      elif not self.shared:  # at once, as a home may have millions
        raise refusal(path, f"has {file}, which is no part of {self.name}")
    if remote and not self.shared:
      return  # an interrupted copy may lack its mark, and nothing is removed there
    if first and not is_marked:
      raise refusal(path, f"has {first}, but is not {self.name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileKind:
  """A kind of text file.

  Attributes:
    name: What it is, for messages.
    start: Regular expression that matches the beginning of its content.
  """

  name: str
  start: str

  def check(self, path: str | os.PathLike) -> None:
    """Checks that a file is missing, empty or of this kind."""
    file = object_store.absolute(path)
    if file.is_dir():
      raise refusal(path, f"is a directory, not {self.name}")
    if not file.exists():
      return
    if not object_store.is_remote(path) and not os.path.isfile(file):
      raise refusal(path, f"is a pipe or a device, not {self.name}")
    with file.open("rb") as opened:
      start = opened.read(_START).decode(errors="replace")
    if start and not re.match(self.start, start):
      raise refusal(path, f"is not {self.name}")


def refusal(path: str | os.PathLike, what: str) -> ValueError:
  """Returns the error about something else where a job would write."""
  return ValueError(
    f"{os.fspath(path)} {what}; nothing there is replaced: give another path, or move it away"
  )


def _files_below(path: str | os.PathLike) -> Iterator[str]:
  """Yields the files below a directory by their relative names; none if it is missing."""
  if object_store.is_remote(path):
    root = os.fspath(path).rstrip("/") + "/"
    with contextlib.suppress(FileNotFoundError):
      yield from (name.removeprefix(root) for name in object_store.list_files(root))
    return
  root = object_store.absolute(path)
  for folder, _, names in os.walk(root):
    yield from (os.path.relpath(os.path.join(folder, name), root) for name in sorted(names))


def _is_ours(file: str) -> bool:
  first = file.partition("/")[0]
  return first == object_store.COMPLETE_FILE or (first.startswith(".") and UNFINISHED in first)


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
  return any(_matches_one(file.split("/"), pattern.split("/")) for pattern in patterns)


def _matches_one(parts: list[str], wanted: list[str]) -> bool:
  if wanted[-1] == "" and len(parts) >= len(wanted):  # every file in a folder
    wanted = wanted[:-1]
    parts = parts[: len(wanted)]
  return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
