"""Generations: immutable versions of the index in one directory, local or `gs://`.

A generation is one step of an Orbax `CheckpointManager`, which makes it visible only when it is
complete. It is an array folder, into which each process writes the arrays of its shards. Readers
neither write nor delete, take part in no barrier, and reject arrays whose digest differs.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from realm_jax.devices import directory_lock, processes
from realm_jax.foundations import array_folder, atomic_files, json_fields, object_store
from realm_jax.foundations.array_folder import FOLDER_FILE, ArrayRecord, FolderKind
from realm_jax.foundations.output_kinds import DirectoryKind

KIND = FolderKind(
  name="a generation",
  kind="generation",
  format=4,
  remake="build the index again with `realm build_index`",
)
_ITEM = "arrays"
_STEPS = ocp.step.standard_name_format()
# What reading files raises that are not those that were written.
_WRONG = (*json_fields.WRONG, FileNotFoundError, NotADirectoryError)
INDEX = DirectoryKind(
  name="an index",
  files=("[0-9]*/", directory_lock.LOCK_FILE),
  marks=(f"*/{_ITEM}/{FOLDER_FILE}", directory_lock.LOCK_FILE),
  shared=True,
)


class ForeignGenerationError(RuntimeError):
  """A generation was built from the checkpoint of another run."""


class DamagedGenerationError(RuntimeError):
  """A published generation differs from what its publisher wrote, or has an older format."""


@dataclasses.dataclass(frozen=True)
class Manifest:
  """Provenance and quality of a generation.

  Attributes:
    training_step: Step of the checkpoint whose passage encoder embedded the passages.
    run: Name of the checkpoint's run; None if it was imported.
    parameters_digest: Digest of that encoder's parameters.
    corpus_fingerprint: Fingerprint of the passage store; ids are its rows.
    searcher: Settings used to build and search the shards.
    recall: Maps k to recall@k relative to exact search on sample queries; empty if exact.
    generation, created: Set by `publish`; the time in Unix seconds.
    shard_rows: Passages of each shard, in the order of the corpus; set by `publish`.
  """

  training_step: int
  parameters_digest: str
  corpus_fingerprint: str
  vocabulary_digest: str
  num_passages: int
  embedding_size: int
  dtype: str
  searcher: dict[str, Any]
  run: str | None = None
  recall: dict[int, float] = dataclasses.field(default_factory=dict)
  generation: int = -1
  created: float = 0.0
  shard_rows: tuple[int, ...] = ()


class _OrbaxFilter(logging.Filter):
  """Drops Orbax's progress messages; its warnings stay."""

  def filter(self, record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or "orbax" not in record.pathname


logging.getLogger("absl").addFilter(_OrbaxFilter())


def all_generations(root: str) -> list[int]:
  """Returns the numbers of the complete generations in `root`, ascending."""
  directory = object_store.absolute(root)
  return sorted(step.step for step in _STEPS.find_all(directory)) if directory.exists() else []


def newest(root: str) -> int | None:
  """Returns the highest number of a complete generation in `root`, None if there is none."""
  return max(all_generations(root), default=None)


def next_number(root: str) -> int:
  """Returns the number of the generation after the newest."""
  return max(all_generations(root), default=-1) + 1


def resolve(root: str, generation: int | None) -> int:
  """Returns a generation, the newest unless one is named."""
  found = newest(root) if generation is None else generation
  if found is None:
    raise FileNotFoundError(f"no index generation in {root}; build one with `realm build_index`")
  return found


def publish(
  root: str,
  generation: int,
  shards: Sequence[Mapping[str, np.ndarray]],
  *,
  manifest: Manifest,
  keep: int,
) -> Manifest:
  """Writes a generation, makes it visible at once, and deletes those before the newest `keep`.

  One job publishes to a directory, see `directory_lock`. Of a job of several processes all publish
  together: each writes its own shards, and the first one makes them visible when all are written.
  Unfinished files of a killed publisher are removed.

  Args:
    generation: Its number, higher than all published ones.
    shards: Named arrays of each shard of this process. Processes hold consecutive parts of the
      corpus, in order. `embeddings` `[rows, E]` is required; the searcher defines the others.
    keep: Number of generations to keep, including this one.

  Raises:
    ValueError: If the number is not above the newest, the shards do not match the manifest, or an
      array's name cannot be stored.
    RuntimeError: If another process could not write its shards.
  """
  directory = object_store.absolute(root)
  records = _records_of_all(shards, manifest)
  own = _numbered(shards, first=sum(map(len, records[: jax.process_index()])))
  if not processes.is_first():
    directory, *_ = processes.share(None)
    _write_arrays(directory, own)
    processes.share(None)  # the generation is visible
    return read_manifest(root, generation)
  if generation < (least := next_number(root)):
    raise ValueError(
      f"generation {generation} cannot be published in {directory}: generations never change and"
      f" their numbers increase; use {least} or higher"
    )
  all_records = [*itertools.chain(*records)]
  manifest = dataclasses.replace(
    manifest,
    generation=generation,
    created=time.time(),
    shard_rows=tuple(record["embeddings"].shape[0] for record in all_records),
  )
  content = array_folder.encode(KIND, manifest, _numbered(all_records))
  directory.mkdir(parents=True, exist_ok=True)
  options = ocp.CheckpointManagerOptions(
    max_to_keep=keep,
    create=False,
    cleanup_tmp_directories=True,
    enable_async_checkpointing=False,
    multiprocessing_options=_alone(),
  )
  with processes.saving(), ocp.CheckpointManager(directory, options=options) as manager:
    items = ocp.args.Composite(**{_ITEM: _SaveGeneration(content, own)})
    manager.save(generation, args=items, force=True)
  processes.share(None)
  return manifest


class _GenerationHandler(ocp.CheckpointHandler):
  """Makes every process write its shards into the directory that the first one commits."""

  def save(self, directory: object_store.Path, args: "_SaveGeneration") -> None:
    processes.share(os.fspath(directory))
    _write_arrays(os.fspath(directory), args.arrays)
    atomic_files.write_bytes(directory / FOLDER_FILE, args.content)

  def restore(self, directory: object_store.Path, args: ocp.args.CheckpointArgs):
    """Readers open the files themselves."""
    raise NotImplementedError


@ocp.args.register_with_handler(_GenerationHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class _SaveGeneration(ocp.args.CheckpointArgs):
  """The content of `folder.json`, and the arrays of the first process."""

  content: bytes
  arrays: dict[str, np.ndarray]


def _write_arrays(directory: str, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes the arrays of this process; returns once all processes have written theirs."""
  failure = ""
  try:
    array_folder.write_arrays(directory, arrays)
  except Exception as error:
    # Shared, because the other processes would otherwise wait for this one forever.
    failure = f"process {jax.process_index()}: {error!r}"
  failures = [failure for failure in processes.share(failure) if failure]
  if failures:
    raise RuntimeError(f"shards of a generation could not be written: {'; '.join(failures)}")


def read_manifest(root: str, generation: int) -> Manifest:
  """Returns the manifest of a generation.

  Raises:
    FileNotFoundError: If there is no such generation (any more).
    DamagedGenerationError: If the manifest is not what was published, or has an older format.
  """
  return _read(root, generation)[0]


def _read(root: str, generation: int) -> tuple[Manifest, dict[str, ArrayRecord]]:
  with _reading(root, generation) as directory:
    content = (directory / FOLDER_FILE).read_bytes()
    manifest, records = array_folder.decode(content, KIND, Manifest)
    if manifest.generation != generation:
      raise ValueError(f"it is generation {manifest.generation}")
  return manifest, records


def restore(root: str, generation: int, shard: int) -> dict[str, np.ndarray]:
  """Returns the named arrays of one shard, each compared with the manifest.

  Raises:
    FileNotFoundError: If there is no such generation (any more).
    DamagedGenerationError: If a file is missing, truncated or changed.
  """
  manifest, records = _read(root, generation)
  shards, prefix = len(manifest.shard_rows), f"{_shard_name(shard)}/"
  if not 0 <= shard < shards:
    raise ValueError(f"generation {generation} in {root} has no shard {shard} of {shards}")
  own = {name: record for name, record in records.items() if name.startswith(prefix)}
  with _reading(root, generation) as directory:
    arrays = array_folder.read_arrays(os.fspath(directory), own)
  return {name.removeprefix(prefix): array for name, array in arrays.items()}


def restore_each(root: str, generation: int, shards: range) -> Iterator[dict[str, np.ndarray]]:
  """Yields the arrays of each shard, see `restore`, and reads the next one meanwhile."""
  with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
    begun = collections.deque()
    for shard in shards:
      begun.append(pool.submit(restore, root, generation, shard))
      if len(begun) > 1:
        yield begun.popleft().result()
    while begun:
      yield begun.popleft().result()


def check_compatible(
  manifest: Manifest, *, corpus_fingerprint: str, embedding_size: int, vocabulary_digest: str
) -> None:
  """Raises ValueError if a generation has another corpus, width or vocabulary than the reader."""
  expected = {
    "corpus_fingerprint": corpus_fingerprint,
    "embedding_size": embedding_size,
    "vocabulary_digest": vocabulary_digest,
  }
  differences = [
    f"{name} is {getattr(manifest, name)}, here it is {value}"
    for name, value in expected.items()
    if getattr(manifest, name) != value
  ]
  if differences:
    raise ValueError(
      f"index generation {manifest.generation} does not fit: {'; '.join(differences)}."
      " Rebuild the index from this corpus, vocabulary and model, or point to the matching ones."
    )


@contextlib.contextmanager
def _reading(root: str, generation: int) -> Iterator[object_store.Path]:
  """Yields the folder of a generation.

  Files that are missing or wrong mean that it is gone or damaged; other errors are the storage's.
  """
  if generation not in all_generations(root):
    raise FileNotFoundError(_gone(root, generation))
  try:
    yield object_store.absolute(root) / _STEPS.build_name(generation) / _ITEM
  except _WRONG as error:
    if generation not in all_generations(root):
      raise FileNotFoundError(_gone(root, generation)) from error
    first_line = next(iter(json_fields.reason(error).splitlines()), "") or type(error).__name__
    raise DamagedGenerationError(
      f"generation {generation} in {object_store.absolute(root)} is damaged"
      f" ({first_line[:200]}); delete it or {KIND.remake}"
    ) from error


def _alone() -> ocp.options.MultiprocessingOptions:
  """Keeps Orbax from waiting for the other processes, which read at other times."""
  process = jax.process_index()
  return ocp.options.MultiprocessingOptions(
    primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"index_{process}"
  )


def _shard_name(shard: int) -> str:
  return f"shard_{shard:05d}"


def _numbered(shards: Sequence[Mapping[str, Any]], *, first: int = 0) -> dict[str, Any]:
  """Returns what shards have by the names of their arrays in the folder."""
  named = enumerate(shards, first)
  return {f"{_shard_name(i)}/{name}": of for i, shard in named for name, of in shard.items()}


def _records_of_all(
  shards: Sequence[Mapping[str, np.ndarray]], manifest: Manifest
) -> list[tuple[dict[str, ArrayRecord], ...]]:
  """Describes the shards of every process, and checks that they add up to the corpus."""
  for i, shard in enumerate(shards):
    embeddings = shard.get("embeddings", np.zeros(()))
    shape, dtype = embeddings.shape, embeddings.dtype.name
    if len(shape) != 2 or not shape[0] or shape[1] != manifest.embedding_size:
      raise ValueError(
        f"shard {i} needs an array 'embeddings' [rows, {manifest.embedding_size}], not {shape}"
      )
    if dtype != manifest.dtype:
      raise ValueError(f"embeddings of shard {i} are {dtype}, the manifest says {manifest.dtype}")
  parts = processes.share([*map(array_folder.describe, shards)])
  records = [json_fields.restored(tuple[dict[str, ArrayRecord], ...], part) for part in parts]
  found = sum(of_one["embeddings"].shape[0] for part in records for of_one in part)
  if found != manifest.num_passages:
    raise ValueError(f"shards hold {found} passages, the manifest says {manifest.num_passages}")
  return records


def _gone(root: str, generation: int) -> str:
  return (
    f"generation {generation} is not in {object_store.absolute(root)} (any more);"
    f" it has {all_generations(root)}"
  )
