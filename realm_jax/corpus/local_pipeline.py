"""Corpus building in processes of this machine, which resumes where it was interrupted."""

import collections
import concurrent.futures
import contextlib
import functools
import gc
import hashlib
import itertools
import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, BinaryIO, TypeVar

from realm_jax import __version__
from realm_jax.corpus import reading
from realm_jax.corpus.documents import Record
from realm_jax.corpus.input_files import InputFile
from realm_jax.corpus.parts import CorpusPart, PartMaker
from realm_jax.foundations import atomic_files, child_processes, object_store, progress

Item = TypeVar("Item")
Result = TypeVar("Result")
_ITEMS_AHEAD = 2  # submitted per worker, including the one in progress
_RESULTS_KEPT = 4  # per worker, while an earlier item is in progress


def make_parts(
  files: Sequence[InputFile], *, make_part: PartMaker, num_workers: int, log: "PartLog"
) -> Iterator[CorpusPart]:
  """Yields the parts in the order of the files, first those in the log.

  Args:
    num_workers: Number of processes, including this one.
  """
  reader = reading.DocumentReader(files)
  make = functools.partial(
    ordered_map,
    make_part,
    num_workers=num_workers,
    preload=[PartMaker.__module__, "realm_jax.text.normalization", "tensorflow_text"],
  )
  parts = log.resume(make, reading.batches(reader), digest=_digest(files, make_part))
  return progress.track(
    parts, what="passages", size=lambda part: len(part.rows), fraction=reader.fraction
  )


def _digest(files: Sequence[InputFile], make_part: PartMaker) -> str:
  """Returns a digest of what the parts depend on, without reading the files."""
  stats = [object_store.Path(file.path).stat() for file in files]
  read = [(str(file), stat.length, stat.mtime) for file, stat in zip(files, stats, strict=True)]
  settings = (make_part.chunking, make_part.drop_list_pages, make_part.languages)
  whole = repr((__version__, make_part.tokenizer.digest, settings, read))
  return hashlib.sha256(whole.encode()).hexdigest()


class PartLog:
  """The parts that an interrupted job has made, kept for the next one.

  They are in a file next to the output, or in the local cache. Each part follows its length and
  checksum; one that a killed job left incomplete is cut off. The file is removed when the context
  ends with a result, or with an error in the input.
  """

  def __init__(self, output: str):
    if object_store.is_remote(output):
      folder = object_store.cache_directory()
      name = hashlib.sha256(output.encode()).hexdigest()[:16]
    else:
      folder, name = os.path.split(os.path.realpath(output))
      name = f".{name}"
    self._path, self._written = os.path.join(folder, f"{name}.parts"), False

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
        raise ValueError(f"another process is writing {self._path}; wait for it") from error
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
    ChildProcessError: If another process dies.
  """
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
