"""The files of a corpus, the format of each, and the encoding of its text."""

import codecs
import dataclasses
import glob
import io
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Literal, TextIO

from realm_jax.foundations import hub, object_store

Format = Literal["auto", "jsonl", "parquet", "table", "text", "markdown"]
_FORMATS: dict[str, Format] = {
  ".jsonl": "jsonl",
  ".json": "jsonl",
  ".parquet": "parquet",
  ".csv": "table",
  ".tsv": "table",
  ".txt": "text",
  ".md": "markdown",
  ".markdown": "markdown",
}
_FILES_NAMED = 5
NOT_UTF8 = "not UTF-8; convert it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
  """A file of a corpus.

  Attributes:
    name: Its path below the directory that all inputs share.
  """

  path: str
  name: str
  format: Format

  @property
  def id(self) -> str:
    """What documents without an id are named after."""
    return printable(self.name)

  @property
  def shown(self) -> str:
    """The path as messages have it."""
    return printable(self.path)


def printable(path: str) -> str:
  """Returns a path with escapes for bytes that are not UTF-8, such as `caf\\xe9.txt`."""
  return os.fsencode(path).decode(errors="backslashreplace")


def input_files(pattern: str | os.PathLike) -> list[str]:
  """Expands a glob pattern, in which `**` matches directories; a directory means all files below.

  What exists is taken literally, whatever characters its name has. In an object store, returns the
  addresses of the objects.

  Raises:
    FileNotFoundError: If no file matches, or a link that matches is broken.
  """
  if object_store.is_remote(pattern):
    return object_store.list_files(os.fspath(pattern))
  files = []
  literal, rest = _literal(os.fspath(pattern))
  for path in glob.glob(glob.escape(literal) + rest, recursive=True):
    if os.path.isdir(path):
      files += _below(path)
    elif not os.path.exists(path):
      raise FileNotFoundError(
        f"{printable(path)} links to a file that does not exist; repair or remove it"
      )
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
  inputs = [*map(_path, inputs)]
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
  return ", ".join(map(printable, paths[:_FILES_NAMED])) + (
    f" and {more:,} more" if more > 0 else ""
  )


def _path(input: str) -> str:
  """Returns an input, or the path of a `file://` URL or of a dataset of the hub.

  Raises:
    ValueError: If it is an address on the web.
  """
  scheme = input.partition("://")[0].lower()
  if scheme in ("http", "https", "ftp"):
    raise ValueError(f"{input:.200} is not downloaded; save it to a file, and give that")
  is_url = scheme == "file" and "://" in input
  if is_url:
    return urllib.request.url2pathname(urllib.parse.urlsplit(input).path)
  return hub.fetch_files(input)


def _literal(pattern: str) -> tuple[str, str]:
  """Divides a pattern into the longest beginning that exists and the rest."""
  ends = [match.start() for match in re.finditer(r"(?<!/)/|\Z", pattern)]
  end = max((end for end in ends if os.path.lexists(pattern[:end])), default=0)
  return pattern[:end], pattern[end:]


def _root(input: str, paths: Sequence[str]) -> str:
  """Returns the directory above the first wildcard of an input."""
  literal, rest = _literal(input)
  fixed = literal + re.split(r"[*?\[]", rest, maxsplit=1)[0]
  is_file = list(map(os.path.abspath, paths)) == [os.path.abspath(input)]
  return input if fixed == input and not is_file else os.path.dirname(fixed)


class TextFile:
  """Opens the text of a file, UTF-8 or UTF-16, again each time that it is called.

  Lines end as they do in the file. Bytes that are not UTF-8 become halves of surrogate pairs, so
  that one bad byte does not end the file.

  Args:
    open: Opens the bytes; what it returns stays open.
    newline: See `io.TextIOWrapper`.
  """

  def __init__(self, open: Callable[[], BinaryIO], *, newline: str):
    self._open = open
    self._newline = newline
    self._text: io.TextIOWrapper | None = None

  def __call__(self) -> TextIO:
    self.detach()
    encoding = _encoding(self._open().read(4))
    self._text = io.TextIOWrapper(
      self._open(), encoding, errors="surrogateescape", newline=self._newline
    )
    return self._text

  def detach(self) -> None:
    """Leaves the bytes open when the text is closed."""
    if self._text is not None and not self._text.closed:
      self._text.detach()
    self._text = None


def _encoding(start: bytes) -> str:
  if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
    return "utf-32"
  if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
    return "utf-16"
  # In UTF-16 one byte of each ASCII character is 0.
  is_zero = tuple(byte == 0 for byte in start)
  if is_zero == (False, True, False, True):
    return "utf-16-le"
  return "utf-16-be" if is_zero == (True, False, True, False) else "utf-8-sig"


def encoding_error(text: str) -> str | None:
  """Returns what is wrong with a text of a file, if anything."""
  if "\0" in text:
    return "NUL characters, which no text has; convert it to UTF-8"
  try:
    text.encode()
  except UnicodeEncodeError:
    return NOT_UTF8
  return None
