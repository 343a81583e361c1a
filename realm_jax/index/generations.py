"""Generations: immutable versions of the index in one directory, local or `gs://`.

A generation is one step of an Orbax `CheckpointManager`, which makes it visible only when it is
complete. It has a manifest and, for every shard, a folder with one file per array, written by the
process that holds the shard. Readers neither write nor delete, take part in no barrier, and reject
arrays whose digest differs from the manifest's.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from realm_jax.devices import directory_lock, processes
from realm_jax.foundations import json_fields, object_store, text_files
from realm_jax.foundations.output_kinds import DirectoryKind

_FORMAT = 3
_MANIFEST = "manifest"
_MANIFEST_FILE = "metadata"
_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_STEPS = ocp.step.standard_name_format()
# What reading files raises that are not those that were written.
_WRONG = (*json_fields.WRONG, FileNotFoundError, NotADirectoryError)
INDEX = DirectoryKind(
  name="an index",
  files=("[0-9]*/", directory_lock.LOCK_FILE),
  marks=(f"*/{_MANIFEST}/*", directory_lock.LOCK_FILE),
  shared=True,
)


class ForeignGenerationError(RuntimeError):
  """A generation was built from the checkpoint of another run."""


class DamagedGenerationError(RuntimeError):
  """A published generation differs from what its publisher wrote, or has an older format."""


@dataclasses.dataclass(frozen=True)
class ArrayRecord:
  """Shape and dtype of an array, and the SHA-256 of its bytes."""

  shape: tuple[int, ...]
  dtype: str
  sha256: str


@dataclasses.dataclass(frozen=True)
class ShardRecord:
  """One shard: `num_rows` passages of the corpus from `first_row` on, and their arrays by name."""

  first_row: int
  num_rows: int
  arrays: dict[str, ArrayRecord]


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
    generation, created, shards: Set by `publish`; the time in Unix seconds, the shards in order.
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
  shards: tuple[ShardRecord, ...] = ()


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
  if keep < 1:
    raise ValueError(f"keep={keep} would delete the generation just published; keep at least 1")
  records = _records_of_all(shards, manifest)
  first_shard = sum(map(len, records[: jax.process_index()]))
  own = {_shard_name(first_shard + i): shard for i, shard in enumerate(shards)}
  if not processes.is_first():
    directory, *_ = processes.share(None)
    _write_shards(object_store.Path(directory), own)
    processes.share(None)  # the generation is visible
    return read_manifest(root, generation)
  if generation < (least := next_number(root)):
    raise ValueError(
      f"generation {generation} cannot be published in {directory}: generations never change and"
      f" their numbers increase; use {least} or higher"
    )
  manifest = dataclasses.replace(
    manifest, generation=generation, created=time.time(), shards=sum(records, ())
  )
  directory.mkdir(parents=True, exist_ok=True)
  options = ocp.CheckpointManagerOptions(
    max_to_keep=keep,
    create=False,
    cleanup_tmp_directories=True,
    enable_async_checkpointing=False,
    multiprocessing_options=_alone(),
  )
  with ocp.CheckpointManager(directory, options=options) as manager:
    items = ocp.args.Composite(**{_MANIFEST: _SaveGeneration(manifest, own)})
    manager.save(generation, args=items, force=True)
  processes.share(None)
  return manifest


class _GenerationHandler(ocp.CheckpointHandler):
  """Makes every process write its shards into the directory that the first one commits."""

  def save(self, directory: object_store.Path, args: "_SaveGeneration") -> None:
    processes.share(os.fspath(directory.parent))
    _write_shards(directory.parent, args.shards)
    content = dataclasses.asdict(args.manifest)
    stored = {"format": _FORMAT, "content": content, "sha256": _json_digest(content)}
    (directory / _MANIFEST_FILE).write_text(json.dumps(stored))

  def restore(self, directory: object_store.Path, args: ocp.args.CheckpointArgs):
    """Readers open the files themselves."""
    raise NotImplementedError


@ocp.args.register_with_handler(_GenerationHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class _SaveGeneration(ocp.args.CheckpointArgs):
  """The manifest, and the shards of the first process by name."""

  manifest: Manifest
  shards: dict[str, Mapping[str, np.ndarray]]


def _write_shards(
  directory: object_store.Path, shards: dict[str, Mapping[str, np.ndarray]]
) -> None:
  """Writes the shards of this process; returns once all processes have written theirs."""
  failure = ""
  try:
    for name, shard in shards.items():
      write_arrays(directory / name, shard)
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
  with _reading(root, generation, _MANIFEST) as directory:
    stored = text_files.parse_json((directory / _MANIFEST_FILE).read_bytes())
    found = stored.get("format", 1)
    if found != _FORMAT:
      raise DamagedGenerationError(
        f"generation {generation} in {object_store.absolute(root)} has format {found}, this version"
        f" reads format {_FORMAT}; build the index again with `realm build_index`"
      )
    if stored["sha256"] != _json_digest(stored["content"]):
      raise ValueError("its SHA-256 differs from the one recorded")
    manifest = json_fields.restored(Manifest, stored["content"])
    if manifest.generation != generation:
      raise ValueError(f"it is that of generation {manifest.generation}")
  return manifest


def restore(root: str, generation: int, shard: int) -> dict[str, np.ndarray]:
  """Returns the named arrays of one shard, each compared with the manifest.

  Raises:
    FileNotFoundError: If there is no such generation (any more).
    DamagedGenerationError: If a file is missing, truncated or changed.
  """
  manifest = read_manifest(root, generation)
  shards = manifest.shards
  if not 0 <= shard < len(shards):
    raise ValueError(f"generation {generation} in {root} has no shard {shard} of {len(shards)}")
  with _reading(root, generation, _shard_name(shard)) as directory:
    return read_arrays(directory, shards[shard].arrays)


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
def _reading(root: str, generation: int, item: str) -> Iterator[object_store.Path]:
  """Yields the directory of an item.

  Files that are missing or wrong mean that it is gone or damaged; other errors are the storage's.
  """
  if generation not in all_generations(root):
    raise FileNotFoundError(_gone(root, generation))
  try:
    yield object_store.absolute(root) / _STEPS.build_name(generation) / item
  except _WRONG as error:
    if generation not in all_generations(root):
      raise FileNotFoundError(_gone(root, generation)) from error
    first_line = next(iter(str(error).splitlines()), "") or type(error).__name__
    raise DamagedGenerationError(
      f"generation {generation} in {object_store.absolute(root)} is damaged"
      f" ({item}: {first_line[:200]}); delete it or build the index again"
    ) from error


def _alone() -> ocp.options.MultiprocessingOptions:
  """Keeps Orbax from waiting for the other processes, which read at other times."""
  process = jax.process_index()
  return ocp.options.MultiprocessingOptions(
    primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"index_{process}"
  )


def _shard_name(shard: int) -> str:
  return f"shard_{shard:05d}"


def _records_of_all(
  shards: Sequence[Mapping[str, np.ndarray]], manifest: Manifest
) -> list[tuple[ShardRecord, ...]]:
  """Describes the shards of every process, and checks that they add up to the corpus."""
  own = []
  for i, shard in enumerate(shards):
    embeddings = shard.get("embeddings", np.zeros(()))
    shape, dtype = embeddings.shape, embeddings.dtype.name
    if len(shape) != 2 or not shape[0] or shape[1] != manifest.embedding_size:
      raise ValueError(
        f"shard {i} needs an array 'embeddings' [rows, {manifest.embedding_size}], not {shape}"
      )
    if dtype != manifest.dtype:
      raise ValueError(f"embeddings of shard {i} are {dtype}, the manifest says {manifest.dtype}")
    own.append(dataclasses.asdict(ShardRecord(0, shape[0], describe(shard))))
  records, first_row = [], 0
  for part in processes.share(own):
    of_one = []
    for record in json_fields.restored(tuple[ShardRecord, ...], part):
      of_one.append(dataclasses.replace(record, first_row=first_row))
      first_row += record.num_rows
    records.append(tuple(of_one))
  if first_row != manifest.num_passages:
    raise ValueError(f"shards hold {first_row} passages, the manifest says {manifest.num_passages}")
  return records


def _json_digest(content: dict) -> str:
  # Through JSON first: it turns the keys of `recall` into strings and tuples into lists.
  plain = json.loads(json.dumps(content))
  return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _gone(root: str, generation: int) -> str:
  return (
    f"generation {generation} is not in {object_store.absolute(root)} (any more);"
    f" it has {all_generations(root)}"
  )


def describe(arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
  """Returns the record of each array."""
  for name in arrays:
    if not _NAME.fullmatch(name):
      raise ValueError(f"an array named {name!r} cannot be stored; use [A-Za-z0-9_.]")
  return {name: _record(array) for name, array in arrays.items()}


def write_arrays(directory: object_store.Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays to a new directory."""
  directory.mkdir()
  for name, array in arrays.items():
    _file_of(directory, name).write_bytes(_content(array).tobytes())


def read_arrays(
  directory: object_store.Path, records: Mapping[str, ArrayRecord]
) -> dict[str, np.ndarray]:
  """Reads arrays at the same time."""
  with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(records))) as pool:
    arrays = pool.map(functools.partial(_read_array, directory), records, records.values())
    return dict(zip(records, arrays, strict=True))


def _read_array(directory: object_store.Path, name: str, record: ArrayRecord) -> np.ndarray:
  """Reads an array; allocates no memory unless the file has the recorded size."""
  if not _NAME.fullmatch(name):
    raise ValueError(f"{name!r} is not the name of an array")
  file = _file_of(directory, name)
  dtype = np.dtype(record.dtype)
  size, expected = file.stat().length, math.prod(record.shape) * dtype.itemsize
  if size != expected:
    raise ValueError(f"{name} has {size} bytes, the manifest says {expected}")
  content = np.empty(size, np.uint8)
  object_store.read_into(content.data, file)
  array = content.view(dtype).reshape(record.shape)
  if _record(array) != record:
    raise ValueError(f"{name} differs from the manifest")
  return array


def _file_of(directory: object_store.Path, name: str) -> object_store.Path:
  return directory / f"{name}.bin"


def _record(array: np.ndarray) -> ArrayRecord:
  digest = hashlib.sha256(_content(array)).hexdigest()
  return ArrayRecord(array.shape, array.dtype.name, digest)


def _content(array: np.ndarray) -> memoryview:
  # uint8, because the buffer protocol lacks bfloat16.
  return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
