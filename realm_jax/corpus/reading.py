"""Reads files of any supported format as documents, one validated record at a time, or a sample."""

import bz2
import gzip
import io
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, TextIO, cast

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, BadRecords, Document, Record, make_record
from realm_jax.corpus.formats import document_files
from realm_jax.corpus.formats.records import read_json, read_parquet
from realm_jax.corpus.formats.tables import read_table
from realm_jax.corpus.input_files import InputFile, TextFile, stem, text_error, unreadable
from realm_jax.foundations import object_store

_MAX_TITLE_CHARACTERS = 150
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?\Z")  # whose marks are no part of it
_KINDS = {  # by their first bytes, whatever their names say
  b"\x1f\x8b\b": "gzip; end its name in .gz",
  b"BZh": "bzip2; end its name in .bz2",
  b"\xfd7zXZ\0": "xz; unpack it",
  b"\x28\xb5\x2f\xfd": "Zstandard; unpack it",
  b"PAR1": "Parquet; end its name in .parquet",
}
# Of a sample.
_FILES, _RECORDS = 256, 20_000  # read at most
_TEXTS = 500
_CHARACTERS = 5_000  # of a text


class DocumentReader:
  """Iterates over the records of files, in their order; a damaged file is a bad record.

  Attributes:
    file: The file of the last record; None after all.
  """

  def __init__(self, files: Sequence[InputFile]):
    self._files = files
    paths = [file.path for file in files]
    self._sizes = [_size(path) for path in paths]
    self._bytes_before = 0
    self.file: InputFile | None = None
    self._open: BinaryIO | None = None

  def __iter__(self) -> Iterator[Record]:
    self._bytes_before = 0
    for file, size in zip(self._files, self._sizes, strict=True):
      self.file = file
      try:
        with open_file(file.path) as self._open:
          yield from read_records(self._open, file=file)
      except (OSError, ValueError) as error:
        self._open = None
        yield unreadable(file.path, error)
      self._open = None
      self._bytes_before += size
    self.file = None

  def fraction(self) -> float:
    """Returns the fraction of the bytes read so far."""
    position = self._open.tell() if self._open else 0
    return (self._bytes_before + position) / max(sum(self._sizes), 1)


def _size(path: str) -> int:
  try:
    return object_store.Path(path).stat().length
  except OSError:  # which opening it tells
    return 0


def open_file(path: str) -> BinaryIO:
  """Opens a file as it is stored, compressed or not."""
  return cast(BinaryIO, object_store.Path(path).open("rb"))


def read_documents(files: Sequence[InputFile], *, bad: BadRecords) -> Iterator[Document]:
  """Yields the documents of files; skips bad records.

  Args:
    files: Files to read, in this order.
    bad: Counts and names the bad records, and ids that occur again.

  Raises:
    ValueError: If a file is damaged.
  """
  for file in files:
    with open_file(file.path) as content:
      for record in read_records(content, file=file):
        if isinstance(record, BadRecord):
          bad.add(record)
        else:
          bad.add_ids([record.id])
          yield record


def read_records(content: BinaryIO, *, file: InputFile) -> Iterator[Record]:
  """Yields the records of one open file.

  Args:
    content: The bytes as stored on disk, compressed or not.
    file: Its path implies the compression (`.gz`, `.bz2`).

  Raises:
    ValueError: If the file is damaged.
  """
  if file.format == "parquet":
    yield from read_parquet(content, file=file)
    return
  read, newline = _READERS.get(file.format, (_read_text, None))

  def opened() -> BinaryIO:
    content.seek(0)
    return _decompressed(content, file)

  lines = TextFile(opened, newline=newline)
  record = None
  try:
    start = opened().read(8)
    if file.format == "document" or start.startswith(tuple(document_files.KINDS)):
      yield from document_files.read(opened(), file=file)
      return
    if kind := next((_KINDS[magic] for magic in _KINDS if start.startswith(magic)), None):
      yield BadRecord(kind="broken_records", name=file.shown, reason=f"it is {kind}")
      return
    for record in read(lines, file=file):
      yield record
    if record is None:
      yield BadRecord(kind="records_without_text", name=file.shown, reason="the file is empty")
  except UnicodeDecodeError:  # in UTF-16
    yield BadRecord(kind="broken_records", name=file.shown, reason="not UTF-16; convert it")
  except (EOFError, zlib.error, OSError) as error:
    content.seek(0)
    start, suffix = content.read(8), os.path.splitext(file.path)[1].lower()
    if start and suffix in _PACKED and not start.startswith(_PACKED[suffix][0]):
      raise ValueError(f"{file.shown} is not {suffix[1:]}; end its name otherwise") from error
    raise ValueError(
      f"{file.shown} is truncated or damaged ({error}); download it again"
    ) from error
  finally:
    lines.detach()


def batches(
  records: Iterable[Record], *, max_records: int = 512, max_characters: int = 200_000
) -> Iterator[list[Record]]:
  """Yields consecutive records in lists of bounded size, to bound memory."""
  batch: list[Record] = []
  characters = 0
  for record in records:
    batch.append(record)
    characters += len(record.text) if isinstance(record, Document) else 0
    if len(batch) == max_records or characters >= max_characters:
      yield batch
      batch, characters = [], 0
  if batch:
    yield batch


def _decompressed(content: BinaryIO, file: InputFile) -> BinaryIO:
  if not (packed := _PACKED.get(os.path.splitext(file.path)[1].lower())):
    return content
  return io.BufferedReader(_Unpacked(packed[1](content), content, file.shown), 1 << 20)


# How each begins, and is opened.
_PACKED: Mapping[str, tuple[bytes, Callable[[BinaryIO], io.BufferedIOBase]]] = {
  ".gz": (b"\x1f\x8b", lambda content: gzip.GzipFile(fileobj=content, mode="rb")),
  ".bz2": (b"BZh", bz2.BZ2File),
}


class _Unpacked(io.RawIOBase):
  """What a compressed file has, unless that is too many times as much."""

  def __init__(self, unpacked: io.BufferedIOBase, packed: BinaryIO, name: str):
    self._size = packed.seek(0, io.SEEK_END)
    packed.seek(0)
    self._unpacked, self._name, self._count = unpacked, name, 0

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    count = self._unpacked.readinto(buffer)
    self._count += count
    if reason := limits.unpacked_error(self._size, self._count):
      raise ValueError(f"{self._name}: {reason}")
    return count


def _read_text(lines: Callable[[], TextIO], *, file: InputFile) -> Iterator[Record]:
  """Yields the one document of a file.

  Its title is that of its Markdown, or the first line, or the file's name if that line is as long
  as a paragraph or the only one.
  """
  limit = limits.MARKDOWN if file.format == "markdown" else limits.RECORD
  text, title, fields, outline = lines().read(limit + 1), "", {}, ()
  if reason := text_error(text, limit=limit):
    yield BadRecord(kind="broken_records", name=file.shown, reason=reason)
    return
  if file.format == "markdown":
    from realm_jax.corpus.formats import markdown  # late, because few programs read it

    title, text, fields, outline = markdown.read_markdown(text)
  if not (title + text).strip():
    return
  if not title:
    first_line, _, body = text.strip().partition("\n")
    title = _HEADING.sub(r"\1", first_line.strip())
    if len(title) > _MAX_TITLE_CHARACTERS or not body.strip():
      title, body = stem(file.id), text
    text = body
  record = {**fields, "id": file.id, "title": title, "text": text}
  yield make_record(record, default_id=file.id, name=file.shown, outline=outline)


# How each is read, and its lines end; "" leaves the ends of lines to the reader.
_READERS = {"jsonl": (read_json, None), "table": (read_table, "")}


def sample_texts(files: Sequence[InputFile]) -> list[str]:
  """Returns the beginnings of up to 1,000 documents.

  They are spread evenly over the first 20,000 documents, which are taken from up to 256 files that
  are spread evenly as well.
  """
  files = files[:: -(-len(files) // _FILES)]
  texts: list[str] = []
  stride = 1
  count = 0
  for file in files:
    with open_file(file.path) as content:
      records = read_records(content, file=file)
      for record in itertools.islice(records, -(-_RECORDS // len(files))):
        if not isinstance(record, Document):
          continue
        if count % stride == 0:
          texts.append(f"{record.title}\n{record.text[:_CHARACTERS]}")
        count += 1
        if len(texts) == 2 * _TEXTS:
          texts, stride = texts[::2], 2 * stride
  return texts
