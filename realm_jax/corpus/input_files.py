"""The files of a corpus, the format of each, and the encoding of its text."""

import codecs
import dataclasses
import fnmatch
import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Literal, TextIO

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, BadRecords
from realm_jax.foundations import hub, object_store

Format = Literal["auto", "jsonl", "parquet", "table", "text", "markdown", "document"]
_FORMATS: dict[str, Format] = {
  ".jsonl": "jsonl",
  ".json": "jsonl",
  ".ndjson": "jsonl",
  ".parquet": "parquet",
  ".csv": "table",
  ".tsv": "table",
  ".txt": "text",
  ".md": "markdown",
  ".markdown": "markdown",
}
_DOCUMENTS = ".docm .docx .eml .epub .htm .html .odp .ods .odt .pdf .pptm .pptx .rtf .xhtml .xlsm"
_FORMATS |= dict.fromkeys([*_DOCUMENTS.split(), ".xlsx"], "document")
_FILES_NAMED = 5
_OPEN = "~$"  # begins the names of what Office writes beside a document that is open
_OUTSIDE = "a link out of the folder; give what it leads to by itself"
_BROKEN = "a broken link"
_NO_FILE = "a pipe, a socket or a device"
_SNAPSHOTS = re.compile(r"/snapshots(?:/|\Z)")  # of the hub's cache, whose files are links to blobs
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


def input_files(
  pattern: str | os.PathLike, *, bad: BadRecords | None = None, outside: str = ""
) -> list[str]:
  """Expands a glob pattern, in which `**` matches directories; a directory means all files below.

  What exists is taken literally, whatever characters its name has. In an object store, returns the
  addresses of the objects.

  Args:
    bad: Counts and names what is skipped; None prints it.
    outside: A folder that is not looked into; "" for none.

  Raises:
    FileNotFoundError: If no file matches, or a link that was named is broken.
    ValueError: If the pattern is the name of a pipe or a device.
  """
  if object_store.is_remote(pattern):
    return object_store.list_files(os.fspath(pattern))
  skipped = BadRecords() if bad is None else bad
  files = {*_matching(os.fspath(pattern), skipped, outside)}
  if bad is None:
    skipped.print()
  if not files:
    raise FileNotFoundError(
      "; ".join([f"no file matches {os.fspath(pattern)!r}", *skipped.report()])
    )
  return sorted(files)


def find_files(
  inputs: Sequence[str],
  *,
  format: Format = "auto",
  bad: BadRecords | None = None,
  outside: str = "",
) -> list[list[InputFile]]:
  """Returns the files of each input.

  Args:
    inputs: Glob patterns or directories.
    format: Format of all files; "auto" infers it from their names.
    bad: Counts and names what is skipped, such as files of a directory whose format is unknown;
      None prints it.
    outside: A folder that is not looked into; "" for none.

  Raises:
    FileNotFoundError: If no file matches one of them.
    ValueError: If the format of a file is unknown; in a directory it is skipped.
  """
  inputs = [*map(local, inputs)]
  skipped = BadRecords() if bad is None else bad
  found = {input: input_files(input, bad=skipped, outside=outside) for input in inputs}
  roots = {input: _root(input, paths) for input, paths in found.items()}
  if format == "auto":
    found = _of_known_format(found, roots, skipped)
  if bad is None:
    skipped.print()
  root = os.path.commonpath(map(os.path.abspath, roots.values()))

  def file(path: str) -> InputFile:
    own = format_of(path) if format == "auto" else None
    return InputFile(path=path, name=os.path.relpath(path, root), format=own or format)

  return [[file(path) for path in found[input]] for input in inputs]


def format_of(path: str) -> Format | None:
  """Returns the format that a file's name implies, or None."""
  name, suffix = os.path.splitext(os.path.basename(path).lower())
  return _FORMATS.get(os.path.splitext(name)[1] if suffix in (".gz", ".bz2") else suffix)


def stem(path: str) -> str:
  """Returns the name of a file without what its format adds."""
  return os.path.splitext(os.path.basename(path))[0]


def matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
  """Returns whether a path, in parts, is one that a pattern matches, or below it."""
  if not pattern:
    return True
  if pattern[0] == "**":
    return any(matches(names[first:], pattern[1:]) for first in range(len(names) + 1))
  return (
    bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and matches(names[1:], pattern[1:])
  )


def literal(pattern: str) -> tuple[str, str]:
  """Divides a pattern into the longest beginning that exists and the rest."""
  ends = [match.start() for match in re.finditer(r"(?<!/)/|\Z", pattern)]
  end = max((end for end in ends if os.path.lexists(pattern[:end])), default=0)
  return pattern[:end], pattern[end:]


def _matching(pattern: str, bad: BadRecords, outside: str) -> Iterator[str]:
  """Yields the files that a pattern matches, or that are below directories that it matches."""
  start, rest = literal(pattern)
  before, recursive, _ = rest.partition("**")
  folders = []
  for path in glob.glob(glob.escape(start) + (os.path.dirname(before) if recursive else before)):
    if rest and os.path.basename(path).startswith(_OPEN):
      continue
    if rest and os.path.islink(path) and os.path.exists(path) and not _is_inside(path, start):
      _skip(path, _OUTSIDE, bad)
    elif os.path.isdir(path):
      folders.append(path)
    elif recursive:
      continue
    elif os.path.isfile(path):
      yield path
    elif not os.path.exists(path) and rest:
      _skip(path, _BROKEN, bad)
    elif not os.path.exists(path):
      raise FileNotFoundError(
        f"{printable(path)} links to a file that does not exist; repair or remove it"
      )
    elif not rest:
      raise ValueError(f"{printable(path)} is {_NO_FILE}; save what it gives to a file")
    else:
      _skip(path, _NO_FILE, bad)
  parts = [*filter(None, rest.split("/"))]
  for file in _below(folders, start, bad, outside):  # by `**`, glob would go each way through links
    if matches(os.path.relpath(file, start or ".").split(os.sep), parts):
      yield file


def _below(directories: Sequence[str], root: str, bad: BadRecords, outside: str) -> Iterator[str]:
  """Yields the files below directories, except hidden ones, each once.

  A link is followed if it leads to something below the root that is not found without it.
  """
  # Real paths of folders, and of files that links lead to.
  seen: set[str] = {os.path.realpath(outside)} if outside else set()
  links = [path for path in directories if path != root and os.path.islink(path)]
  folders = [(path, os.path.realpath(path)) for path in directories if path not in links]
  while folders or links:
    if not folders:  # links come last, in the order of their names
      links.sort(reverse=True)
      link = links.pop()
      real = os.path.realpath(link)
      is_hidden = os.path.basename(real).startswith(".")
      if not os.path.exists(real):
        _skip(link, _BROKEN, bad)
      elif not _is_inside(link, root):
        _skip(link, _OUTSIDE, bad)
      elif os.path.isdir(real):
        folders.append((link, real))
      elif not os.path.isfile(real):
        _skip(link, _NO_FILE, bad)
      elif real not in seen and (is_hidden or os.path.dirname(real) not in seen):
        seen.add(real)
        yield link
      continue
    path, real = folders.pop()
    if real in seen:
      continue
    seen.add(real)
    try:
      with os.scandir(path) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
      bad.add(unreadable(path, error))
      bad.unreadable.append(path)
      continue
    for entry in entries:
      if entry.name.startswith((".", _OPEN)):
        continue
      if entry.is_symlink():
        links.append(entry.path)
      elif entry.is_dir(follow_symlinks=False):
        folders.append((entry.path, os.path.join(real, entry.name)))
      elif entry.is_file(follow_symlinks=False):
        yield entry.path
      else:
        _skip(entry.path, _NO_FILE, bad)


def _is_inside(link: str, root: str) -> bool:
  real, root = os.path.realpath(link), os.path.realpath(root or ".")
  cache = _SNAPSHOTS.split(root)[0] + "/blobs/" if _SNAPSHOTS.search(root) else None
  return (real + "/").startswith((root.rstrip("/") + "/", cache or "\0"))


def _skip(path: str, reason: str, bad: BadRecords) -> None:
  bad.add(BadRecord(kind="skipped_files", name=printable(path), reason=reason))


def unreadable(path: str, error: Exception) -> BadRecord:
  """Returns a record of a file or a folder that cannot be read."""
  name = printable(path)
  reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
  reason = reason.removeprefix(name).lstrip(": ")
  return BadRecord(kind="unreadable_files", name=name, reason=reason)


def _of_known_format(
  found: dict[str, list[str]], roots: dict[str, str], bad: BadRecords
) -> dict[str, list[str]]:
  known = {input: [path for path in found[input] if format_of(path)] for input in found}
  refused = []
  for input, paths in found.items():
    is_folder = roots[input] == input and known[input]
    for path in (path for path in paths if not format_of(path)):
      if is_folder:
        _skip(path, "of unknown format", bad)
      else:
        refused.append(path)
  if refused:
    raise ValueError(
      f"cannot infer the format of {_listed(refused)}; end their names in {', '.join(_FORMATS)}"
    )
  return known


def _listed(paths: Sequence[str]) -> str:
  more = len(paths) - _FILES_NAMED
  return ", ".join(map(printable, paths[:_FILES_NAMED])) + (
    f" and {more:,} more" if more > 0 else ""
  )


def local(input: str) -> str:
  """Returns an input, or the path of a `file://` URL or of a dataset of the hub.

  Raises:
    ValueError: If it is an address on the web.
  """
  scheme = input.partition("://")[0].lower()
  if scheme in ("http", "https", "ftp"):
    raise ValueError(f"{input:.200} is not downloaded; save it to a file, and give that")
  is_url = scheme == "file" and "://" in input
  if is_url:
    # Late, because urllib.request also speaks HTTP.
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    return url2pathname(urlsplit(input).path)
  return hub.fetch_files(input)


def _root(input: str, paths: Sequence[str]) -> str:
  """Returns the directory above the first wildcard of an input."""
  start, rest = literal(input)
  fixed = start + re.split(r"[*?\[]", rest, maxsplit=1)[0]
  is_file = list(map(os.path.abspath, paths)) == [os.path.abspath(input)]
  return input if fixed == input and not is_file else os.path.dirname(fixed)


class TextFile:
  """Opens the text of a file, UTF-8 or UTF-16, again each time that it is called.

  Bytes that are not UTF-8 become halves of surrogate pairs, so
  that one bad byte does not end the file.

  Args:
    open: Opens the bytes; what it returns stays open.
    newline: See `io.TextIOWrapper`.
  """

  def __init__(self, open: Callable[[], BinaryIO], *, newline: str | None):
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


def lines_of(text: TextIO) -> Iterator[str]:
  """Yields the lines of a text; of one that is too long, its beginning, still too long."""
  while line := text.readline(limits.RECORD + 1):
    yield line
    while len(line) > limits.RECORD and line[-1] not in "\r\n":
      line = text.readline(limits.RECORD + 1) or "\n"


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


def text_error(text: str, *, limit: int = limits.RECORD) -> str | None:
  """Returns what is wrong with a text of a file, if anything."""
  if len(text) > limit:
    return limits.too_long(limit)
  if "\0" in text:
    return "NUL characters, which no text has; convert it to UTF-8"
  try:
    text.encode()
  except UnicodeEncodeError:
    return NOT_UTF8
  return None
