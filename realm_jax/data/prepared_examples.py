"""Examples as memory-mapped arrays, in the order in which training reads them.

A directory has one file of fixed-size rows for every stream and feature, and a manifest that is
written last. Reading needs no TensorFlow.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping

import numpy as np

from realm_jax.data.batches import Batches, Features, Shard
from realm_jax.foundations import atomic_files, json_fields, object_store, text_files
from realm_jax.foundations.output_kinds import DirectoryKind

MANIFEST_FILE = "examples_manifest.json"
FORMAT_VERSION = 1
_DTYPES = ("int32", "int64", "float32")  # dtypes of features
_STORED_DTYPES = (*_DTYPES, "uint16")
_POSITION, _FINGERPRINT = "examples_read", "fingerprint"

EXAMPLES = DirectoryKind(
  name="a directory of prepared examples", files=(MANIFEST_FILE, "*.bin"), marks=(MANIFEST_FILE,)
)

Setting = str | int | float | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureRecord:
  """Shape and dtypes of an array, or of one example of a feature."""

  shape: tuple[int, ...]
  dtype: str
  stored_dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
  """Description of a directory of prepared examples.

  Attributes:
    settings: What determined the examples, such as task, vocabulary and lengths; a reader compares
      them with its own.
    order: "shuffled", to train on repeatedly, or "corpus", one pass to evaluate on.
    seed: Seeded the order and the masks.
    num_examples: Number of examples of each stream.
    fingerprint: Digest of all rows and arrays.
    arrays: Arrays that belong to the examples as a whole, such as the labels of questions.
    selection: How some of the examples were chosen; empty if all were kept.
  """

  settings: dict[str, Setting]
  order: str
  seed: int
  num_examples: tuple[int, ...]
  features: dict[str, FeatureRecord]
  fingerprint: str
  arrays: dict[str, FeatureRecord] = dataclasses.field(default_factory=dict)
  selection: dict[str, Setting] = dataclasses.field(default_factory=dict)
  format_version: int = FORMAT_VERSION


class Writer:
  """Writes the examples of one stream after another without keeping them in memory."""

  def __init__(self, directory: str, *, vocab_size: int):
    self._directory = directory
    self._id_dtype = "uint16" if vocab_size <= 2**16 else "int32"
    self._features: dict[str, FeatureRecord] = {}
    self._arrays: dict[str, FeatureRecord] = {}
    self._num_examples: list[int] = []
    self._hash = hashlib.sha256()

  def write_stream(self, parts: Iterable[Features]) -> int:
    """Appends the next stream, given in parts of any size; returns its number of examples."""
    stream, count = len(self._num_examples), 0
    files = {}
    try:
      for part in parts:
        self._features = self._features or {name: self._record(a) for name, a in part.items()}
        for name, record in sorted(self._features.items()):
          if name not in files:
            files[name] = open(_path(self._directory, stream, name), "wb")
          rows = np.ascontiguousarray(part[name].astype(record.stored_dtype))
          if not np.array_equal(rows, part[name]):
            raise ValueError(f"{name} has values that {record.stored_dtype} cannot represent")
          self._hash.update(rows.data)
          files[name].write(rows)
        count += len(rows)
    finally:
      for file in files.values():
        atomic_files.close(file)
    self._num_examples.append(count)
    return count

  def write_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays that belong to the examples as a whole."""
    for name, array in sorted(arrays.items()):
      dtype = array.dtype.name
      self._arrays[name] = FeatureRecord(shape=array.shape, dtype=dtype, stored_dtype=dtype)
      rows = np.ascontiguousarray(array)
      self._hash.update(rows.data)
      with open(_array_path(self._directory, name), "wb") as file:
        file.write(rows.data)
        atomic_files.close(file)

  def finish(
    self,
    *,
    settings: Mapping[str, Setting],
    order: str,
    seed: int,
    selection: Mapping[str, Setting] | None = None,
  ) -> Manifest:
    """Writes the manifest that makes the directory readable; see `Manifest`."""
    manifest = Manifest(
      settings=dict(settings),
      order=order,
      seed=seed,
      num_examples=tuple(self._num_examples),
      features=self._features,
      arrays=self._arrays,
      selection=dict(selection or {}),
      fingerprint=self._hash.hexdigest()[:32],
    )
    content = json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True)
    atomic_files.write_text(os.path.join(self._directory, MANIFEST_FILE), content)
    return manifest

  def _record(self, array: np.ndarray) -> FeatureRecord:
    dtype = array.dtype.name
    if dtype not in _DTYPES:
      raise ValueError(f"a feature of dtype {dtype} cannot be stored; {', '.join(_DTYPES)} can")
    return FeatureRecord(
      shape=array.shape[1:], dtype=dtype, stored_dtype=self._id_dtype if dtype == "int32" else dtype
    )


class PreparedBatches(Batches):
  """Batches of one stream of prepared examples: shuffled ones repeat, others are read once.

  The last batch of a single pass is padded with zeros (zero weights). A batch across the end of an
  epoch continues with the first examples of the next epoch, which has the same order. The position
  is the number of examples read.

  Raises:
    ValueError: If the size of a file does not match the manifest, or a shuffled stream is smaller
      than a batch.
  """

  def __init__(self, directory: str, *, manifest: Manifest, stream: int, batch_size: int):
    self._num_examples = manifest.num_examples[stream]
    self._repeats = manifest.order == "shuffled"
    self._fingerprint = np.frombuffer(manifest.fingerprint.encode(), np.uint8)
    self._directory = directory
    self._batch_size = batch_size
    self.examples_read = 0
    # All processes look at all streams, so that they end together.
    fewest = min(manifest.num_examples)
    if self._repeats and fewest < batch_size:
      streams = len(manifest.num_examples)
      raise ValueError(
        f"{directory} has {fewest} examples for stream {manifest.num_examples.index(fewest)} of "
        f"{streams}, fewer than the {batch_size} of its part of a batch; prepare more, or lower "
        f"batch_size to at most {fewest * streams}"
      )
    self._arrays = {
      name: _open_array(_path(directory, stream, name), record, (self._num_examples, *record.shape))
      for name, record in manifest.features.items()
    }
    self._dtypes = {name: record.dtype for name, record in manifest.features.items()}

  def __next__(self) -> Features:
    rows = np.arange(self.examples_read, self.examples_read + self._batch_size)
    if not self._repeats:
      rows = rows[rows < self._num_examples]
      if not len(rows):
        raise StopIteration
    self.examples_read += self._batch_size
    batch = {}
    for name, array in self._arrays.items():
      found = array[rows % self._num_examples].astype(self._dtypes[name])
      missing = self._batch_size - len(found)
      batch[name] = np.pad(found, [(0, missing)] + [(0, 0)] * (found.ndim - 1))
    return batch

  def position(self) -> Features:
    return {_POSITION: np.array([self.examples_read]), _FINGERPRINT: self._fingerprint}

  def restore(self, position: Features) -> None:
    if _POSITION not in position or not np.array_equal(position[_FINGERPRINT], self._fingerprint):
      raise ValueError(
        f"the saved run read other examples than those in {self._directory}; use the same examples "
        "or another workdir"
      )
    self.examples_read = int(np.asarray(position[_POSITION])[0])


def is_prepared(directory: str | os.PathLike) -> bool:
  """Returns whether a directory holds prepared examples."""
  return (object_store.absolute(directory) / MANIFEST_FILE).exists()


def read_manifest(directory: str | os.PathLike) -> Manifest:
  """Reads and checks a manifest.

  Raises:
    FileNotFoundError: If the directory has none.
    ValueError: If it was not written by a `Writer`.
  """
  path = os.path.join(directory, MANIFEST_FILE)
  local = os.path.join(object_store.local_copy(directory, MANIFEST_FILE), MANIFEST_FILE)
  if not os.path.exists(local):
    raise FileNotFoundError(f"no {path}; write it with `realm prepare_examples`")
  content = text_files.read_json(local)
  try:
    if content["format_version"] != FORMAT_VERSION:
      raise ValueError(f"format {content['format_version']}, not {FORMAT_VERSION}")
    manifest = json_fields.restored(Manifest, content)
    for name, record in [*manifest.features.items(), *manifest.arrays.items()]:
      known = record.dtype in _DTYPES and record.stored_dtype in _STORED_DTYPES
      if not name.isidentifier() or not known:
        raise ValueError(f"feature {name!r} is {record}")
    return manifest
  except json_fields.WRONG as error:
    raise ValueError(f"{path} is not a manifest of prepared examples: {error!r}") from error


def read_arrays(directory: str) -> dict[str, np.ndarray]:
  """Returns the arrays that belong to prepared examples as a whole, memory-mapped.

  Raises:
    FileNotFoundError: If the examples are missing.
    ValueError: If the size of a file does not match the manifest.
  """
  arrays = read_manifest(directory).arrays
  local = object_store.local_copy(directory, *(_array_path("", name) for name in arrays))
  return {
    name: _open_array(_array_path(local, name), record, record.shape)
    for name, record in arrays.items()
  }


def open_batches(
  directory: str,
  *,
  settings: Mapping[str, Setting],
  order: str,
  batch_size: int,
  shard: Shard | None = None,
) -> PreparedBatches:
  """Opens prepared examples; the counterpart of `input_pipeline.task_batches`.

  Args:
    directory: Directory of prepared examples. From an object store, this part is copied to the
      local cache.
    settings: The settings that they must have been prepared with.
    order: "shuffled" or "corpus".
    shard: The part of the data that this process reads; the same number of parts must have been
      prepared.

  Raises:
    FileNotFoundError: If the examples are missing.
    ValueError: If they were prepared with other settings, in another order or number of streams.
  """
  manifest = read_manifest(directory)
  wanted = {**settings, "order": order, "data_streams": 1 if shard is None else shard.num_shards}
  found = {**manifest.settings, "order": manifest.order, "data_streams": len(manifest.num_examples)}
  differences = [
    f"{name}={found.get(name)}, here {wanted.get(name)}"
    for name in sorted(wanted.keys() | found.keys())
    if wanted.get(name) != found.get(name)
  ]
  if differences:
    raise ValueError(
      f"the examples in {directory} were prepared with {'; '.join(differences)}; prepare them "
      "again or change the setting"
    )
  stream = 0 if shard is None else shard.index
  local = object_store.local_copy(directory, _path("", stream, "*"))
  return PreparedBatches(local, manifest=manifest, stream=stream, batch_size=batch_size)


def _open_array(path: str, record: FeatureRecord, shape: tuple[int, ...]) -> np.ndarray:
  dtype = np.dtype(record.stored_dtype)
  expected = int(np.prod(shape)) * dtype.itemsize
  size = os.path.getsize(path) if os.path.exists(path) else None
  if size != expected:
    raise ValueError(f"{path} has {size} bytes instead of {expected}; prepare the examples again")
  if not expected:
    return np.zeros(shape, dtype)
  return np.memmap(path, dtype, mode="r", shape=shape)


def _path(directory: str, stream: int, name: str) -> str:
  return os.path.join(directory, f"stream_{stream:03d}.{name}.bin")


def _array_path(directory: str, name: str) -> str:
  return os.path.join(directory, f"{name}.bin")
