"""Generations: immutable editions of the index in one directory, local or `gs://`.

A generation is one step of an Orbax `CheckpointManager`: a manifest and, for every shard, a tree of
arrays. It becomes visible only when it is complete. Readers neither write nor delete, take part in
no barrier, and believe no array whose digest differs from the manifest's.
"""

import dataclasses
import hashlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import orbax.checkpoint as ocp

from realm_jax import object_store, processes

_ARRAY_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_MANIFEST = "manifest"
_WRITERS = "writers"  # of several processes, which wrote what
_STEPS = ocp.step.standard_name_format()


class DamagedGenerationError(RuntimeError):
  """A published generation does not hold what its publisher wrote."""


@dataclasses.dataclass(frozen=True)
class ArrayRecord:
  """What one array of a shard must be: its shape, dtype and the SHA-256 of its bytes."""

  shape: tuple[int, ...]
  dtype: str
  sha256: str


@dataclasses.dataclass(frozen=True)
class ShardRecord:
  """One shard: `num_rows` passages of the corpus from `first_row` on, and its arrays by name."""

  first_row: int
  num_rows: int
  arrays: dict[str, ArrayRecord]


@dataclasses.dataclass(frozen=True)
class Manifest:
  """What a generation was made from, and how good it is.

  Attributes:
    training_step: step of the checkpoint whose passage encoder made the embeddings.
    parameters_digest: digest of that encoder's parameters.
    corpus_fingerprint: fingerprint of the passage store whose rows the ids are.
    vocabulary_digest: digest of the vocabulary that cut the passages into wordpieces.
    num_passages: N.
    embedding_size: E.
    dtype: of the embeddings, "float32" or "bfloat16".
    searcher: settings that the shards were built with.
    recall: k to recall@k of the searcher against exact search on a sample; may be empty.
    scorecard: figures on probe questions and against the generation before; may be empty.
    generation: its number; filled in by `publish`.
    created: time of publication in seconds since 1970; filled in by `publish`.
    shards: in the order of the corpus; filled in by `publish`.
  """

  training_step: int
  parameters_digest: str
  corpus_fingerprint: str
  vocabulary_digest: str
  num_passages: int
  embedding_size: int
  dtype: str
  searcher: dict[str, str | int | float | None]
  recall: dict[int, float] = dataclasses.field(default_factory=dict)
  scorecard: dict[str, float] = dataclasses.field(default_factory=dict)
  generation: int = -1
  created: float = 0.0
  shards: tuple[ShardRecord, ...] = ()


class _OrbaxFilter(logging.Filter):
  """Drops what Orbax reports of every step of every operation; its warnings stay."""

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


def publish(
  root: str,
  generation: int,
  shards: Sequence[Mapping[str, np.ndarray]],
  *,
  manifest: Manifest,
  keep: int,
) -> Manifest:
  """Writes a generation, makes it visible at once, and deletes all but the newest `keep`.

  Only one job may publish to a directory. Of a job of several processes all publish together: each
  writes its own shards, and the first one makes them visible when all are written. What a killed
  publisher left unfinished is removed.

  Args:
    root: directory of the generations, created if missing.
    generation: number, higher than all published ones.
    shards: named arrays of each shard of this process, in the order of the corpus, of which the
      processes have consecutive parts; `embeddings` `[rows, E]` must be among them, the rest is
      the searcher's.
    manifest: without `generation`, `created` and `shards`.
    keep: complete generations left in the directory, this one included.

  Returns:
    The manifest as published.

  Raises:
    ValueError: if the number is not above the newest, the shards do not add up to what the manifest
      says, or an array's name cannot be stored.
    RuntimeError: if another process could not write its shards.
  """
  directory = object_store.absolute(root)
  if keep < 1:
    raise ValueError(f"keep={keep} would delete the generation just published; keep at least 1")
  records = _records_of_all(shards, manifest)
  first_shard = sum(map(len, records[: jax.process_index()]))
  own = {_shard_name(first_shard + i): shard for i, shard in enumerate(shards)}
  if not processes.is_first():
    directory, *_ = processes.share(None)
    _write_together(object_store.Path(directory), own)
    processes.share(None)  # the generation is visible
    return read_manifest(root, generation)
  last = newest(root)
  if generation < 0 or (last is not None and generation <= last):
    raise ValueError(
      f"generation {generation} cannot be published in {directory}: generations never change and"
      f" their numbers rise; use {0 if last is None else last + 1} or higher"
    )
  manifest = dataclasses.replace(
    manifest, generation=generation, created=time.time(), shards=sum(records, ())
  )
  content = dataclasses.asdict(manifest)
  if jax.process_count() == 1:
    items = {
      name: ocp.args.PyTreeSave({n: np.asarray(array) for n, array in shard.items()})
      for name, shard in own.items()
    }
  else:
    items = {_WRITERS: _SaveTogether(own)}
  items[_MANIFEST] = ocp.args.JsonSave({"content": content, "sha256": _json_digest(content)})
  directory.mkdir(parents=True, exist_ok=True)
  options = ocp.CheckpointManagerOptions(
    max_to_keep=keep,
    create=False,
    cleanup_tmp_directories=True,
    enable_async_checkpointing=False,
    multiprocessing_options=_alone(),
  )
  with ocp.CheckpointManager(directory, options=options) as manager:
    manager.save(generation, args=ocp.args.Composite(**items), force=True)
  processes.share(None)
  return manifest


class _TogetherHandler(ocp.CheckpointHandler):
  """Has every process write its shards into the directory that the first one makes visible."""

  def save(self, directory: object_store.Path, args: "_SaveTogether") -> None:
    processes.share(os.fspath(directory.parent))
    writers = _write_together(directory.parent, args.shards)
    (directory / "writers.json").write_text(json.dumps(writers))

  def restore(self, directory: object_store.Path, args: ocp.args.CheckpointArgs):
    """Shards are read one by one; who wrote them is for people."""
    raise NotImplementedError


@ocp.args.register_with_handler(_TogetherHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class _SaveTogether(ocp.args.CheckpointArgs):
  """The shards of the first process by name."""

  shards: dict[str, Mapping[str, np.ndarray]]


def _write_together(
  directory: object_store.Path, shards: dict[str, Mapping[str, np.ndarray]]
) -> list[list[str]]:
  """Writes the shards of this process; returns those of each when all have written theirs."""
  failure = ""
  try:
    for name, shard in shards.items():
      _write_files(directory / name, shard)
  except Exception as error:
    # Told to all, or they would wait for this process for ever.
    failure = f"process {jax.process_index()}: {error!r}"
  everyone = processes.share([failure, list(shards)])
  failures = [failure for failure, _ in everyone if failure]
  if failures:
    raise RuntimeError(f"shards of a generation could not be written: {'; '.join(failures)}")
  return [names for _, names in everyone]


def _write_files(directory: object_store.Path, shard: Mapping[str, np.ndarray]) -> None:
  """Writes one file an array: Orbax writes numpy arrays in the first process only."""
  directory.mkdir()
  for name, array in shard.items():
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    (directory / f"{name}.bin").write_bytes(content.tobytes())


def read_manifest(root: str, generation: int) -> Manifest:
  """Returns the manifest of a generation.

  Raises:
    FileNotFoundError: if there is no such generation (any more).
    DamagedGenerationError: if the manifest is not what was published.
  """
  stored = _read(root, generation, _MANIFEST, ocp.args.JsonRestore())
  try:
    if stored["sha256"] != _json_digest(stored["content"]):
      raise ValueError("its SHA-256 differs from the one recorded")
    manifest = _manifest_from_json(stored["content"])
    if manifest.generation != generation:
      raise ValueError(f"it is that of generation {manifest.generation}")
  except (KeyError, TypeError, AttributeError, ValueError) as error:
    raise _damaged(root, generation, _MANIFEST, error) from error
  return manifest


def restore(root: str, generation: int, shard: int) -> dict[str, np.ndarray]:
  """Returns the named arrays of one shard, each compared with the manifest.

  Raises:
    FileNotFoundError: if there is no such generation (any more).
    DamagedGenerationError: if a file is missing, cut short or changed.
  """
  shards = read_manifest(root, generation).shards
  if not 0 <= shard < len(shards):
    raise ValueError(f"generation {generation} in {root} has no shard {shard} of {len(shards)}")
  records = shards[shard].arrays
  name = _shard_name(shard)
  directory = object_store.absolute(root) / _STEPS.build_name(generation) / name
  if (directory / "embeddings.bin").exists():
    arrays = {
      array: _read_file(root, generation, name, array, record) for array, record in records.items()
    }
  else:
    _check_shapes(root, generation, name, records)
    host = {array: ocp.RestoreArgs(restore_type=np.ndarray) for array in records}
    arrays = _read(root, generation, name, ocp.args.PyTreeRestore(restore_args=host))
  for array, record in records.items():
    if _record(arrays[array]) != record:
      raise _damaged(root, generation, f"{name}, array {array}", "it differs from the manifest")
  return arrays


def check_compatible(
  manifest: Manifest, *, corpus_fingerprint: str, embedding_size: int, vocabulary_digest: str
) -> None:
  """Raises ValueError if a generation is of another corpus, width or vocabulary than the reader."""
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


def _read(root: str, generation: int, item: str, args: ocp.args.CheckpointArgs):
  """Reads one item of a generation without a manager, which would list, lock and wait."""
  path = object_store.absolute(root) / _STEPS.build_name(generation)
  if generation not in all_generations(root):
    raise FileNotFoundError(_gone(root, generation))
  handler = ocp.CompositeCheckpointHandler(
    composite_options=ocp.CompositeOptions(multiprocessing_options=_alone())
  )
  try:
    with ocp.Checkpointer(handler, multiprocessing_options=_alone()) as checkpointer:
      return checkpointer.restore(path, args=ocp.args.Composite(**{item: args}))[item]
  # Damaged bytes surface as any error of Orbax, TensorStore, zstd or JSON.
  except Exception as error:
    if generation not in all_generations(root):
      raise FileNotFoundError(_gone(root, generation)) from error
    raise _damaged(root, generation, item, error) from error


def _read_file(
  root: str, generation: int, item: str, array: str, record: ArrayRecord
) -> np.ndarray:
  """Reads an array of a shard that several processes wrote, if it has the size of the manifest."""
  path = object_store.absolute(root) / _STEPS.build_name(generation) / item / f"{array}.bin"
  try:
    if not _ARRAY_NAME.fullmatch(array):
      raise ValueError(f"{array!r} is no name of an array")
    dtype = np.dtype(record.dtype)
    size, expected = path.stat().length, math.prod(record.shape) * dtype.itemsize
    if size != expected:
      raise ValueError(f"{array} has {size} bytes, the manifest says {expected}")
    return np.frombuffer(path.read_bytes(), dtype).reshape(record.shape).copy()
  except Exception as error:
    if generation not in all_generations(root):
      raise FileNotFoundError(_gone(root, generation)) from error
    raise _damaged(root, generation, item, error) from error


def _check_shapes(
  root: str, generation: int, item: str, records: Mapping[str, ArrayRecord]
) -> None:
  """Compares what a shard says of its arrays with the manifest, before memory is taken for them."""
  path = object_store.absolute(root) / _STEPS.build_name(generation) / item
  try:
    found = ocp.PyTreeCheckpointHandler().metadata(path).tree
    wrong = [
      f"{name} is {found[name].dtype} {tuple(found[name].shape)}"
      for name, record in records.items()
      if (tuple(found[name].shape), np.dtype(found[name].dtype).name)
      != (record.shape, record.dtype)
    ]
  except Exception as error:
    if generation not in all_generations(root):
      raise FileNotFoundError(_gone(root, generation)) from error
    raise _damaged(root, generation, item, error) from error
  if wrong:
    raise _damaged(root, generation, item, f"{'; '.join(wrong)}, unlike in the manifest")


def _alone() -> ocp.options.MultiprocessingOptions:
  """Without this Orbax waits for the other processes, which read at times of their own."""
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
  own = [dataclasses.asdict(record) for record in _records(shards, manifest)]
  records, first_row = [], 0
  for part in processes.share(own):
    of_one = []
    for record in _records_from_json(part):
      of_one.append(dataclasses.replace(record, first_row=first_row))
      first_row += record.num_rows
    records.append(tuple(of_one))
  if first_row != manifest.num_passages:
    raise ValueError(f"shards hold {first_row} passages, the manifest says {manifest.num_passages}")
  return records


def _records(
  shards: Sequence[Mapping[str, np.ndarray]], manifest: Manifest
) -> tuple[ShardRecord, ...]:
  """Describes the shards after comparing them with what the manifest promises."""
  records = []
  first_row = 0
  for i, shard in enumerate(shards):
    for name in shard:
      if not _ARRAY_NAME.fullmatch(name):
        raise ValueError(f"array name {name!r} of shard {i} cannot be stored; use [A-Za-z0-9_.]")
    embeddings = shard.get("embeddings")
    shape = None if embeddings is None else embeddings.shape
    if shape is None or len(shape) != 2 or not shape[0] or shape[1] != manifest.embedding_size:
      raise ValueError(
        f"shard {i} needs an array 'embeddings' [rows, {manifest.embedding_size}], not {shape}"
      )
    if embeddings.dtype.name != manifest.dtype:
      raise ValueError(
        f"embeddings of shard {i} are {embeddings.dtype.name}, the manifest says {manifest.dtype}"
      )
    arrays = {name: _record(array) for name, array in shard.items()}
    records.append(ShardRecord(first_row=first_row, num_rows=shape[0], arrays=arrays))
    first_row += shape[0]
  return tuple(records)


def _record(array: np.ndarray) -> ArrayRecord:
  # uint8, because the buffer protocol knows no bfloat16.
  content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
  return ArrayRecord(array.shape, array.dtype.name, hashlib.sha256(content).hexdigest())


def _records_from_json(content: list[dict]) -> tuple[ShardRecord, ...]:
  return tuple(
    ShardRecord(
      first_row=shard["first_row"],
      num_rows=shard["num_rows"],
      arrays={
        name: ArrayRecord(tuple(record["shape"]), record["dtype"], record["sha256"])
        for name, record in shard["arrays"].items()
      },
    )
    for shard in content
  )


def _manifest_from_json(content: dict) -> Manifest:
  shards = _records_from_json(content["shards"])
  recall = {int(k): value for k, value in content["recall"].items()}
  return Manifest(**{**content, "shards": shards, "recall": recall})


def _json_digest(content: dict) -> str:
  # Through JSON first: it turns the keys of `recall` into strings and tuples into lists.
  plain = json.loads(json.dumps(content))
  return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _gone(root: str, generation: int) -> str:
  return (
    f"generation {generation} is not in {object_store.absolute(root)} (any more);"
    f" there are {all_generations(root)}"
  )


def _damaged(root: str, generation: int, item: str, reason) -> DamagedGenerationError:
  first_line = next(iter(str(reason).splitlines()), "") or type(reason).__name__
  return DamagedGenerationError(
    f"generation {generation} in {object_store.absolute(root)} is damaged"
    f" ({item}: {first_line[:200]}); delete it or build the index again"
  )
