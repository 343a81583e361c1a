"""What is given as texts: a folder, files or records in memory; and how they become passages."""

import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import regex

from realm_jax.corpus import chunking, input_files, reading
from realm_jax.corpus.documents import BadRecord, BadRecords, Document, make_record
from realm_jax.foundations import progress
from realm_jax.text.languages import UNSPACED
from realm_jax.text.segmentation import segments, sentence_spans, to_byte_offsets

Texts = (
  str | os.PathLike | Mapping[str, Any] | Iterable[str | os.PathLike] | Iterable[Mapping[str, Any]]
)
# How a data frame gives its rows.
_ROWS: Mapping[str, Callable[[Any], Iterable[Mapping]]] = {
  "pandas": lambda frame: frame.to_dict("records"),
  "polars": lambda frame: frame.iter_rows(named=True),
  "pyarrow": lambda table: table.to_pylist(),
}
# What is no word, such as a long address, counts as several.
_RUN = regex.compile(rf"(?P<unspaced>[{UNSPACED}]+)|[^\s{UNSPACED}]{{1,50}}")
_SPACED_WORD = re.compile(r"\S{1,50}")  # the same, several times as fast
_UNSPACED = regex.compile(f"[{UNSPACED}]")
_SHORT = 10  # characters a word of a document that may be one passage


class TextReader:
  """Iterates over the documents of texts, each with an id of its own.

  Args:
    texts: See `KnowledgeBase.add`.
    outside: A folder with files that are not read.
    folders: Folders that were given before. The id of a file is its path below the first of them
      that has it, so a file has the same id alone as among all. If that folder has one that was
      given before it, the path begins there (`../b.txt`), because its files have their ids already.

  Attributes:
    bad: Records that yield no document.
    folders: Those folders, and those of these files.
  """

  def __init__(self, texts: Texts, *, outside: str, folders: Sequence[str] = ()):
    self.bad = BadRecords()
    self.folders = (*folders,)
    given = iter(_items(texts))
    first = [*itertools.islice(given, 1)]
    self._records: Iterator[Any] = itertools.chain(first, given)
    self._files: Sequence[input_files.InputFile] = ()
    if first and isinstance(first[0], (str, os.PathLike)):
      paths = [*self._records]
      if mixed := [path for path in paths if not isinstance(path, (str, os.PathLike))]:
        raise ValueError(f"{mixed[0]!r} is no path, but comes after one; add the two apart")
      files = _files([*map(os.fspath, paths)], outside, self.bad)
      for file in files:
        folder = os.path.abspath(file.path).removesuffix(file.name)
        if not folder.startswith(self.folders):
          self.folders += (folder,)
      self._files = [_below(file, self.folders) for file in files]

  def __iter__(self) -> Iterator[Document]:
    """Yields the documents."""
    reader = reading.DocumentReader(self._files)
    records = itertools.chain(reader, map(_record, itertools.count(), self._records))
    fraction = reader.fraction if self._files else None
    ids = set()
    for record in progress.track(records, what="documents", fraction=fraction):
      if isinstance(record, BadRecord):
        self.bad.add(record)
        continue
      if record.id in ids:
        raise ValueError(f"two documents have the id {record.id!r}; give each its own")
      ids.add(record.id)
      yield record
    if self.bad.counts["unreadable_files"] and not ids:
      raise ValueError("; ".join(["nothing could be read", *self.bad.report()]))


def _items(texts: Texts) -> Iterable[Any]:
  """Returns paths or records, which a data frame has as rows."""
  if isinstance(texts, (str, os.PathLike, Mapping)):
    return [texts]
  for library, rows in _ROWS.items():
    if type(texts).__module__.partition(".")[0] == library and hasattr(texts, "columns"):
      return rows(texts)
  if not isinstance(texts, Iterable):
    raise ValueError(f"{texts!r:.60} is no text; give a path or mappings with `id` and `text`")
  return texts


def _files(paths: list[str], outside: str, bad: BadRecords) -> list[input_files.InputFile]:
  outside = os.path.realpath(outside) + os.sep
  found: dict[str, input_files.InputFile] = {}  # by real path: links make no second document
  for file in itertools.chain(*input_files.find_files(paths, bad=bad)):
    found.setdefault(os.path.realpath(file.path), file)
  return [file for real, file in found.items() if not real.startswith(outside)]


def _below(file: input_files.InputFile, folders: Sequence[str]) -> input_files.InputFile:
  path = os.path.abspath(file.path)
  folder = next(folder for folder in folders if path.startswith(folder))
  start = next(inner for inner in folders if inner.startswith(folder))
  return dataclasses.replace(file, name=os.path.relpath(path, start))


def _record(number: int, fields: Mapping[str, Any]) -> Document | BadRecord:
  if not isinstance(fields, Mapping):
    raise ValueError(f"record {number} is {fields!r:.60}; give a mapping with `id` and `text`")
  record = make_record(dict(fields), default_id="", name=f"record {number}")
  if isinstance(record, Document) and not record.id:
    raise ValueError(
      f"record {number}, {fields.get('text')!r:.60}, has no id; give one, by which it can be "
      "updated and deleted"
    )
  if isinstance(record, BadRecord) and record.reason:
    raise ValueError(f"{record.name}: {record.reason}")
  return record


def beginning(document: Document) -> str:
  """Returns the title of a document, or its text if it has none that tells something."""
  name = os.path.splitext(os.path.basename(document.id))[0]
  is_name = document.title == name and document.text  # which tells nothing
  return document.text if is_name else document.title or document.text


def cutter(*, words: int) -> Callable[[Document, str], list[str]]:
  """Returns a function that cuts a document into passages of about so many words.

  Returns:
    A function of a document and its language, which decides where sentences end.
  """
  room = chunking.SPECIAL_TOKENS_PER_PASSAGE
  config = chunking.ChunkingConfig(max_passage_length=words + room)

  def cut(document: Document, language: str) -> list[str]:
    text = document.text
    if len(text) <= _SHORT * words and _num_words(text) <= words:
      return [text.strip()]
    raw = text.encode()
    sentences = [
      _with_words(raw[start:limit].decode(), start, most=words)
      for start, limit in sentence_spans(text, language=language)
    ]
    chunks = chunking.chunk_sentences(sentences, title_length=0, config=config, counts=Counter())
    # A title alone is found as well.
    return [raw[chunk.start : chunk.limit].decode() for chunk in chunks] or [""]

  return cut


def _with_words(text: str, start: int, *, most: int) -> chunking.TokenizedSentence:
  """Returns a sentence, with the places of its words only if it has to be split."""
  count = _num_words(text)
  spans = to_byte_offsets(text, _word_spans(text) if count > most else [])
  borders = np.array(spans, np.int64).reshape(-1, 2)
  return chunking.TokenizedSentence(
    start=start,
    limit=start + len(text.encode()),
    ids=np.zeros(count, np.int32),
    starts=borders[:, 0],
    limits=borders[:, 1],
  )


def _num_words(text: str) -> int:
  is_spaced = text.isascii() or not _UNSPACED.search(text)
  return len(_SPACED_WORD.findall(text) if is_spaced else _word_spans(text))


def _word_spans(text: str) -> list[tuple[int, int]]:
  spans = []
  for run in _RUN.finditer(text):
    inner = segments(run[0]) if run.lastgroup == "unspaced" else [(0, len(run[0]))]
    spans += [(run.start() + a, run.start() + b) for a, b in inner]
  return spans
