"""What is given as texts: a folder, files or records in memory."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from realm_jax.corpus import input_files, reading
from realm_jax.corpus.documents import BadRecord, BadRecords, Document, Record, make_record
from realm_jax.corpus.formats.records import arrow_rows
from realm_jax.foundations import progress
from realm_jax.knowledge_base.store.edit import Changes, Edit, listed
from realm_jax.knowledge_base.store.file_states import FileStates
from realm_jax.knowledge_base.store.sources import Sources

Texts = (
  str
  | os.PathLike
  | Mapping[str, Any]
  | Iterable[str | os.PathLike]
  | Iterable[Mapping[str, Any]]
  | Iterable[Record]
)


class TextReader:
  """Iterates over the documents of texts.

  Args:
    texts: See `KnowledgeBase.add`.
    sources: Gets those of files.
    states: Gets those of files.
    skip: Whether files are not read that have not changed since they were, as by a sync.

  Attributes:
    bad: Records that yield no document.
  """

  def __init__(self, texts: Texts, sources: Sources, states: FileStates, *, skip: bool = False):
    self.bad = BadRecords()
    self._sources, self._states = sources, states
    given = iter(_items(texts))
    first = [*itertools.islice(given, 1)]
    if skip and not first:
      raise ValueError(
        "nothing is given to sync with, so nothing was deleted; use `delete` for that"
      )
    self._records: Iterator[Any] = itertools.chain(first, given)
    self._files: list[input_files.InputFile] = []
    if first and isinstance(first[0], (str, os.PathLike)):
      paths = [*self._records]
      if mixed := [path for path in paths if not isinstance(path, (str, os.PathLike))]:
        raise ValueError(f"{mixed[0]!r} is no path, but comes after one; add the two apart")
      for file in sources.files([*map(os.fspath, paths)], self.bad):
        if states.is_unchanged(key := sources.key(file), file) and skip:
          states.repeat(key, file, self.bad)
          sources.unchanged.add(key)
        else:
          self._files.append(file)

  def __iter__(self) -> Iterator[Document]:
    """Yields the documents."""
    reader = reading.DocumentReader(self._files)
    records = itertools.chain(reader, map(_record, itertools.count(), self._records))
    fraction = reader.fraction if self._files else None
    for record in progress.track(records, what="documents", fraction=fraction):
      file = reader.file
      key = self._sources.key(file) if file else ""
      if isinstance(record, BadRecord):
        self.bad.add(record)
        if file:
          self._states.add(key, file, record)
        continue
      yield dataclasses.replace(record, file=key) if file else record


Change = Literal["add", "update", "sync"]


def put(edit: Edit, texts: Texts, *, path: str, change: Change) -> Changes:
  """Adds the documents of texts to a commit in the making; see the methods of `KnowledgeBase`.

  Args:
    path: The folder of the knowledge base.

  Raises:
    ValueError: If nothing of them could be read, so that nothing changes.
  """
  sources, states = Sources(edit.before, outside=path), FileStates(path, edit.before)
  reader = TextReader(texts, sources, states, skip=change == "sync")
  edit.sources, edit.states = tuple(sources.known), states
  edit.keep(sources.unchanged)
  for batch in reading.batches(reader):
    documents = [record for record in batch if isinstance(record, Document)]
    edit.put(sources.named(documents, broken=states.broken), replace=change != "add")
    if edit.replaced and change == "add":
      raise ValueError(
        f"{path} has {listed(edit.replaced)} with another content; nothing was added: update what "
        "is there, or give other ids"
      )
  if change == "sync":
    are_known = sources.were_given(unread=reader.bad.unreadable)
    edit.delete_others(
      sources.were_given(), unless=lambda key: key in states.broken or not are_known(key)
    )
  skipped, done = reader.bad.report(), ("added", "updated", "unchanged", "deleted")
  if skipped and not any(edit.counts[name] for name in done):
    raise ValueError("; ".join(["nothing could be read", *skipped]))
  return Changes(skipped=tuple(skipped), **edit.counts)


def _items(texts: Texts) -> Iterable[Any]:
  """Returns paths or records, which a data frame has as rows."""
  if isinstance(texts, (str, os.PathLike, Mapping)):
    return [texts]
  library = type(texts).__module__.partition(".")[0]
  if library in _ROWS and hasattr(type(texts), "columns"):
    return _ROWS[library](texts)
  if not isinstance(texts, Iterable):
    raise ValueError(f"{texts!r:.60} is no text; give a path or mappings with `id` and `text`")
  return texts


def _pandas_rows(frame: Any) -> Iterable[Mapping]:
  if not frame.columns.is_unique:
    raise ValueError(
      f"the frame has several columns {frame.columns[frame.columns.duplicated()][0]!r}"
    )
  return frame.to_dict("records")


def _polars_rows(frame: Any) -> Iterable[Mapping]:
  return (frame.collect() if hasattr(frame, "collect") else frame).iter_rows(named=True)


def _arrow_rows(table: Any) -> Iterator[Mapping]:
  batches = table.to_batches() if hasattr(table, "to_batches") else [table]
  rows = itertools.chain.from_iterable(map(arrow_rows, batches))
  for number, row in enumerate(rows):
    if isinstance(row, str):
      raise ValueError(f"record {number}: {row}")
    yield row


# How a data frame gives its rows.
_ROWS: Mapping[str, Callable[[Any], Iterable[Mapping]]] = {
  "pandas": _pandas_rows,
  "polars": _polars_rows,
  "pyarrow": _arrow_rows,
}


def _record(number: int, fields: Mapping[str, Any] | Record) -> Record:
  if isinstance(fields, (Document, BadRecord)):
    return fields  # as `reading` yields them
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
