"""Corpus building as a pure function from records to rows of a store.

Several processes or a pipeline engine run it over any division of the records into parts; the
parts, concatenated in order, give the same corpus.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import hashlib
import itertools
import multiprocessing
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, BinaryIO, TypeVar

import msgpack
import numpy as np
from absl import logging

from realm_jax import __version__
from realm_jax.corpus import reading
from realm_jax.corpus.chunking import ChunkingConfig, Passage, make_passages
from realm_jax.corpus.documents import BadRecord, BadRecords, Document, Record, UidSet
from realm_jax.corpus.input_files import InputFile, input_files
from realm_jax.corpus.passage_store import PassageRow, id_dtype, passage_row
from realm_jax.foundations import atomic_files, child_processes, object_store, progress
from realm_jax.text import tokenization

Item = TypeVar("Item")
Result = TypeVar("Result")
_ITEMS_AHEAD = 2  # submitted per worker, including the one in progress
_UNKNOWN = (0.01, 0.2)  # shares of the wordpieces: more are warned of, or refused
_ENOUGH_TO_JUDGE = 1_000  # wordpieces
_RESULTS_KEPT = 4  # per worker, while an earlier item is in progress

_TITLE = re.compile(r"(?:List|Index|Outline) of .|.*\(disambiguation\)")
_FIRST_LINE = re.compile(
  r"[^.\n]{1,100}\b(?:may|can|could|might) (?:also )?"
  r"(?:refer to|mean|stand for)\b[^.\n]{0,40}:\s*$",
  re.MULTILINE,
)


def is_list_or_disambiguation(title: str, text: str) -> bool:
  """Returns whether a page lists other pages, judged by its title and its first line."""
  return bool(_TITLE.match(title) or _FIRST_LINE.match(text))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusPart:
  """The passages of consecutive records.

  Attributes:
    examples: The same passages as serialised tagged examples.
    counts: Counts of documents, bad records, splits and so on.
    ids: Ids of the documents.
  """

  rows: Sequence[PassageRow]
  examples: Sequence[bytes]
  counts: Counter
  bad_records: Sequence[BadRecord]
  ids: Sequence[str]

  def to_bytes(self) -> bytes:
    """Serialises the part."""
    bad_records = list(map(dataclasses.asdict, self.bad_records))
    return msgpack.Packer().pack([self.rows, self.examples, self.counts, bad_records, self.ids])

  @classmethod
  def from_bytes(cls, content: bytes) -> "CorpusPart":
    """Restores a part."""
    rows, examples, counts, bad_records, ids = msgpack.unpackb(content)
    return cls(
      rows=[PassageRow(*row) for row in rows],
      examples=examples,
      counts=Counter(counts),
      bad_records=[BadRecord(**fields) for fields in bad_records],
      ids=ids,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartMaker:
  """Makes parts; can be pickled and sent to other processes and machines.

  Attributes:
    tokenizer: A `WordPieceTokenizer`.
    tag: Finds the salient spans (byte offsets) of a text in a language.
    serialize: Turns a `Passage` into a tagged example.
    languages: The languages of the corpus.
  """

  tokenizer: Any
  tag: Callable[[str, str], Sequence[tuple[int, int]]]
  serialize: Callable[[Passage], bytes]
  chunking: ChunkingConfig
  drop_list_pages: bool
  languages: Sequence[str] = ("en",)

  def __call__(self, records: Sequence[Record]) -> CorpusPart:
    """Returns the part made from these records."""
    bad_records = [record for record in records if isinstance(record, BadRecord)]
    counts = Counter(bad.kind for bad in bad_records)
    documents = [record for record in records if isinstance(record, Document)]
    counts["documents"] = len(documents)
    ids = [document.id for document in documents]
    if self.drop_list_pages:
      prose = [d for d in documents if not is_list_or_disambiguation(d.title, d.text)]
      counts["list_pages_dropped"] = len(documents) - len(prose)
      documents = prose
    rows, examples = [], []
    for passage in make_passages(
      documents,
      tokenizer=self.tokenizer,
      tag=self.tag,
      config=self.chunking,
      counts=counts,
      languages=self.languages,
    ):
      rows.append(
        passage_row(
          title=passage.title,
          text=passage.text,
          title_ids=passage.title_ids,
          body_ids=passage.body_ids,
          uid=passage.uid,
          vocab_size=self.tokenizer.vocab_size,
          document=passage.document,
        )
      )
      examples.append(self.serialize(passage))
    return CorpusPart(
      rows=rows, examples=examples, counts=+counts, bad_records=bad_records, ids=ids
    )


class PartLog:
  """The parts that an interrupted job has made, kept in a file for the next one.

  Each part follows its length and checksum; one that a killed job left incomplete is cut off. The
  file is removed when the context ends with a result, or with an error in the input.
  """

  def __init__(self, path: str):
    self._path, self._written = path, False

  def __enter__(self) -> "PartLog":
    return self

  def __exit__(self, error, *_) -> None:
    if self._written and (error is None or issubclass(error, ValueError)):
      os.unlink(self._path)

  def resume(
    self,
    make_parts: Callable[[Iterable[Sequence[Record]]], Iterable[CorpusPart]],
    batches: Iterable[Sequence[Record]],
    *,
    digest: str,
  ) -> Iterator[CorpusPart]:
    """Yields the parts in the file, then those of the remaining batches, which it adds.

    Args:
      make_parts: Makes a part of each batch, in order.
      batches: All batches, from the first one.
      digest: Digest of what the parts depend on; a file of another digest is not used.

    Raises:
      ValueError: If another process is writing the file.
    """
    os.makedirs(os.path.dirname(self._path), exist_ok=True)
    with contextlib.ExitStack() as stack:
      file = stack.enter_context(open(self._path, "a+b"))
      try:
        stack.enter_context(atomic_files.locked(self._path))
      except BlockingIOError as error:
        raise ValueError(f"another process is writing {file.name}; wait for it") from error
      except OSError:
        pass  # this file system has no locks
      self._written, header = True, f"{digest}\n".encode()
      file.seek(0)
      if file.read(len(header)) != header:
        file.truncate(0)
        file.write(header)
      count, end = 0, len(header)
      while content := _read_checked(file):
        yield CorpusPart.from_bytes(content)
        count, end = count + 1, file.tell()
      file.truncate(end)
      for part in make_parts(itertools.islice(batches, count, None)):
        content = part.to_bytes()
        file.write(len(content).to_bytes(8) + zlib.crc32(content).to_bytes(4) + content)
        file.flush()
        yield part


def _read_checked(file: BinaryIO) -> bytes:
  """Returns the content behind the next length and checksum; empty if it is not whole."""
  size, checksum = int.from_bytes(file.read(8)), file.read(4)
  if size > os.fstat(file.fileno()).st_size:  # no size, but what a power failure has left
    return b""
  content = file.read(size)
  return content if zlib.crc32(content).to_bytes(4) == checksum else b""


_function: Callable[[Any], Any] | None = None  # of a worker


def ordered_map(
  function: Callable[[Item], Result],
  items: Iterable[Item],
  *,
  num_workers: int,
  preload: Sequence[str] = (),
) -> Iterator[Result]:
  """Yields the result for each item, in order.

  Args:
    function: Sent once to every other process.
    items: Consumed only as fast as the results are.
    num_workers: Number of processes, including this one.
    preload: Modules that several other processes share in memory.

  Raises:
    ValueError: If `num_workers` is below 1.
    ChildProcessError: If another process dies.
  """
  if num_workers < 1:
    raise ValueError(f"num_workers={num_workers}; use at least one")
  if num_workers == 1:
    yield from map(function, items)
    return
  others = num_workers - 1
  # Forking this process would copy TensorFlow's threads in an unknown state.
  context = multiprocessing.get_context("forkserver")
  # A single worker has nothing to share, and the server would hold another copy.
  context.set_forkserver_preload(list(preload) if others > 1 else [])
  with concurrent.futures.ProcessPoolExecutor(
    others, mp_context=context, initializer=_install, initargs=(function,)
  ) as pool:
    results: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for item in items:
        if sum(not result.done() for result in results) < others * _ITEMS_AHEAD:
          results.append(pool.submit(_call, item))
        else:
          results.append(_finished(function(item)))
        while results and (results[0].done() or len(results) > others * _RESULTS_KEPT):
          yield results.popleft().result()
      while results:
        yield results.popleft().result()
    except BrokenProcessPool as error:
      raise ChildProcessError(
        "a worker process died, most likely because memory ran out; lower --num_workers"
      ) from error
    finally:
      for result in results:
        result.cancel()


def _finished(result) -> concurrent.futures.Future:
  future: concurrent.futures.Future = concurrent.futures.Future()
  future.set_result(result)
  return future


def _install(function: Callable[[Any], Any]) -> None:
  global _function
  _function = function
  child_processes.end_with_parent()
  # Garbage collection would write to all memory shared with other workers.
  gc.freeze()
  # Accelerators are left to the training process.
  os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
  # The processes already occupy the cores; TensorFlow's threads would only cost memory.
  os.environ["TF_NUM_INTEROP_THREADS"] = os.environ["TF_NUM_INTRAOP_THREADS"] = "1"


def _call(item):
  assert _function is not None, "the worker has not been given its function"
  return _function(item)


def log_path(output: str) -> str:
  """Returns the file that keeps the parts, next to the output or in the local cache."""
  if object_store.is_remote(output):
    name = hashlib.sha256(output.encode()).hexdigest()[:16]
    return os.path.join(object_store.cache_directory(), f"{name}.parts")
  parent, name = os.path.split(os.path.realpath(output))
  return os.path.join(parent, f".{name}.parts")


def _digest(files: Sequence[InputFile], make_part: PartMaker) -> str:
  """Returns a digest of what the parts depend on, without reading the files."""
  stats = [object_store.Path(file.path).stat() for file in files]
  read = [(str(file), stat.length, stat.mtime) for file, stat in zip(files, stats, strict=True)]
  settings = (make_part.chunking, make_part.drop_list_pages, make_part.languages)
  whole = repr((__version__, make_part.tokenizer.digest, settings, read))
  return hashlib.sha256(whole.encode()).hexdigest()


class Processes:
  """Makes parts in processes of this machine."""

  def __init__(self, num_workers: int):
    self._num_workers = num_workers
    self.expand, self.open_file = input_files, reading.open_file

  def parts(
    self, files: Sequence[InputFile], make_part: PartMaker, log: PartLog
  ) -> Iterator[CorpusPart]:
    """Yields the parts in the order of the files, first those in the log."""
    reader = reading.DocumentReader(files)
    make_parts = functools.partial(
      ordered_map,
      make_part,
      num_workers=self._num_workers,
      preload=[PartMaker.__module__, "realm_jax.text.normalization", "tensorflow_text"],
    )
    parts = log.resume(make_parts, reading.batches(reader), digest=_digest(files, make_part))
    return progress.track(
      parts, what="passages", size=lambda part: len(part.rows), fraction=reader.fraction
    )


class Gathered:
  """Concatenates parts in order, without duplicate passages.

  Attributes:
    counts: Documents, passages, wordpieces and bad records so far.
  """

  def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
    self.counts: Counter = Counter()
    self._tokenizer = tokenizer
    self._bad = BadRecords()

  def gather(self, parts: Iterable[CorpusPart], write: Callable[[PassageRow, bytes], None]) -> None:
    """Calls `write` with every passage that is not a duplicate."""
    dtype = id_dtype(self._tokenizer.vocab_size)
    unknown = self._tokenizer.unk_id
    uids = UidSet()
    for part in parts:
      self.counts.update(part.counts)
      for bad in part.bad_records:
        self._bad.add(bad)
      self._bad.add_ids(part.ids)
      new = uids.add([row.uid for row in part.rows])
      self.counts["duplicate_passages"] += new.count(False)
      self.counts["passages"] += new.count(True)
      for row, example, is_new in zip(part.rows, part.examples, new, strict=True):
        if is_new:
          ids = np.frombuffer(row.body_ids, dtype)
          self.counts["wordpieces"] += len(ids)
          self.counts["unknown_wordpieces"] += int(np.count_nonzero(ids == unknown))
          write(row, example)

  def check(self, pattern: str) -> None:
    """Warns if the vocabulary knows too little of the text.

    Raises:
      ValueError: If there are no passages, or the vocabulary is one of other languages.
    """
    if not self.counts["passages"]:
      raise ValueError(f"no text in {pattern!r}: {self.report()}")
    share = self.counts["unknown_wordpieces"] / max(self.counts["wordpieces"], _ENOUGH_TO_JUDGE)
    if share > _UNKNOWN[0]:
      says = f"the vocabulary does not know {share:.1%} of the wordpieces of {pattern!r}"
      says += "; learn one with another --vocabulary and --vocab_size"
      if share > _UNKNOWN[1]:
        raise ValueError(f"{says}, or take an encoder of these languages")
      logging.warning("%s", says)

  def report(self) -> str:
    """Returns the counts, and names bad records and repeated ids."""
    counts = dict(sorted(self.counts.items()))
    if self.counts["wordpieces"]:
      counts.pop("unknown_wordpieces")
    lines = [", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())]
    if self.counts["wordpieces"]:
      share = self.counts["unknown_wordpieces"] / self.counts["wordpieces"]
      lines[0] += f", {share:.3%} of the wordpieces unknown"
    return "\n".join([*lines, *self._bad.report()])
