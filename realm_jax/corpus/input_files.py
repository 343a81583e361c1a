"""The files of a corpus, and the format of each."""

import dataclasses
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from realm_jax.foundations import object_store

Format = Literal["auto", "jsonl", "parquet", "table", "text"]
_FORMATS: dict[str, Format] = {
  ".jsonl": "jsonl",
  ".json": "jsonl",
  ".parquet": "parquet",
  ".csv": "table",
  ".tsv": "table",
  ".txt": "text",
  ".md": "text",
}
_FILES_NAMED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
  """A file of a corpus.

  Attributes:
    name: Its path below the directory that all inputs share; documents without an id are named
      after it.
  """

  path: str
  name: str
  format: Format


def input_files(pattern: str | os.PathLike) -> list[str]:
  """Expands a glob pattern, in which `**` matches directories; a directory means all files below.

  In an object store, returns the addresses of the objects.

  Raises:
    FileNotFoundError: If no file matches, or a link that matches is broken.
  """
  if object_store.is_remote(pattern):
    return object_store.list_files(os.fspath(pattern))
  files = []
  for path in glob.glob(os.fspath(pattern), recursive=True):
    if os.path.isdir(path):
      files += _below(path)
    elif not os.path.exists(path):
      raise FileNotFoundError(f"{path} links to a file that does not exist; repair or remove it")
    else:
      files.append(path)
  there = [path for path in files if os.path.exists(path)]
  if broken := sorted({*files} - {*there}):
    print(f"skipped broken links ({len(broken):,}): {_listed(broken)}", flush=True)
  if not there:
    raise FileNotFoundError(f"no file matches {os.fspath(pattern)!r}")
  return sorted(set(there))


def find_files(
  inputs: Sequence[str],
  *,
  format: Format = "auto",
  expand: Callable[[str], Sequence[str]] = input_files,
) -> list[list[InputFile]]:
  """Returns the files of each input, and says which files of a directory are skipped.

  Args:
    inputs: Glob patterns or directories.
    format: Format of all files; "auto" infers it from their names.
    expand: Lists the files of an input.

  Raises:
    FileNotFoundError: If no file matches one of them.
    ValueError: If the format of a file is unknown; in a directory it is skipped.
  """
  found = {input: list(expand(input)) for input in inputs}
  roots = {input: _root(input, paths) for input, paths in found.items()}
  if format == "auto":
    found = _of_known_format(found, roots)
  root = os.path.commonpath(map(os.path.abspath, roots.values()))

  def file(path: str) -> InputFile:
    own = format_of(path) if format == "auto" else None
    return InputFile(path=path, name=os.path.relpath(path, root), format=own or format)

  return [[file(path) for path in found[input]] for input in inputs]


def format_of(path: str) -> Format | None:
  """Returns the format that a file's name implies, or None."""
  name = os.path.basename(path).lower().removesuffix(".gz").removesuffix(".bz2")
  return _FORMATS.get(os.path.splitext(name)[1])


def _below(directory: str, above: tuple[str, ...] = ()) -> Iterator[str]:
  """Yields the files and broken links below a directory, except hidden ones.

  A link to a directory above it is not followed.
  """
  real = os.path.realpath(directory)
  if real in above:
    return
  for name in os.listdir(directory):
    path = os.path.join(directory, name)
    if name.startswith("."):
      continue
    if os.path.isdir(path):
      yield from _below(path, (*above, real))
    elif os.path.isfile(path) or (os.path.islink(path) and not os.path.exists(path)):
      yield path


def _of_known_format(found: dict[str, list[str]], roots: dict[str, str]) -> dict[str, list[str]]:
  known = {input: [path for path in found[input] if format_of(path)] for input in found}
  skipped, refused = [], []
  for input, paths in found.items():
    unknown = [path for path in paths if not format_of(path)]
    (skipped if roots[input] == input and known[input] else refused).extend(unknown)
  if refused:
    raise ValueError(
      f"cannot infer the format of {_listed(refused)}; end their names in {', '.join(_FORMATS)}"
    )
  if skipped:
    print(f"skipped files of unknown format ({len(skipped):,}): {_listed(skipped)}", flush=True)
  return known


def _listed(paths: Sequence[str]) -> str:
  more = len(paths) - _FILES_NAMED
  return ", ".join(paths[:_FILES_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _root(input: str, paths: Sequence[str]) -> str:
  """Returns the directory above the first wildcard of an input."""
  fixed = re.split(r"[*?\[]", input, maxsplit=1)[0]
  is_file = list(map(os.path.abspath, paths)) == [os.path.abspath(input)]
  return input if fixed == input and not is_file else os.path.dirname(fixed)
