"""Examples as memory-mapped arrays, in the order in which a training takes them.

A directory holds, for every stream and feature, one file of equally long rows, and a manifest that
is written last. Nothing is loaded before it is asked for, and nothing here needs TensorFlow.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from realm_jax import atomic_files, object_store
from realm_jax.data.batches import Features, Shard

MANIFEST_FILE = "examples_manifest.json"
FORMAT_VERSION = 1
_DTYPES = ("int32", "int64", "float32")  # of features
_STORED_DTYPES = (*_DTYPES, "uint16")
_POSITION, _FINGERPRINT = "examples_read", "fingerprint"

Setting = str | int | float | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureRecord:
  """A feature or array: its shape, of a feature that of an example, its dtype, that on disk."""

  shape: tuple[int, ...]
  dtype: str
  stored_dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
  """What a directory of prepared examples says about itself.

  Attributes:
    settings: what decided the examples, such as task, vocabulary and lengths; a reader compares it.
    order: "shuffled", to train with for ever, or "corpus", one pass to evaluate with.
    seed: of order and masks.
    num_examples: of each stream.
    features: by name.
    fingerprint: digest of all rows and arrays.
    arrays: what belongs to the examples as a whole, such as the labels of questions.
    format_version: layout of the directory.
  """

  settings: dict[str, Setting]
  order: str
  seed: int
  num_examples: tuple[int, ...]
  features: dict[str, FeatureRecord]
  fingerprint: str
  arrays: dict[str, FeatureRecord] = dataclasses.field(default_factory=dict)
  format_version: int = FORMAT_VERSION


class Writer:
  """Writes the examples of one stream after the other and keeps none of them in memory.

  Args:
    directory: an empty, existing directory.
    vocab_size: ids below 2**16 are stored in two bytes.
  """

  def __init__(self, directory: str, *, vocab_size: int):
    self._directory = directory
    self._id_dtype = "uint16" if vocab_size <= 2**16 else "int32"
    self._features: dict[str, FeatureRecord] = {}
    self._arrays: dict[str, FeatureRecord] = {}
    self._num_examples: list[int] = []
    self._hash = hashlib.sha256()

  def write_stream(self, parts: Iterable[Features]) -> int:
    """Appends the next stream, given in parts of any number of rows; returns its examples."""
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
            raise ValueError(f"{name} has values that {record.stored_dtype} cannot hold")
          self._hash.update(rows)
          files[name].write(rows)
        count += len(rows)
    finally:
      for file in files.values():
        file.flush()
        os.fsync(file.fileno())
        file.close()
    self._num_examples.append(count)
    return count

  def write_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays that belong to the examples as a whole."""
    for name, array in sorted(arrays.items()):
      dtype = array.dtype.name
      self._arrays[name] = FeatureRecord(shape=array.shape, dtype=dtype, stored_dtype=dtype)
      rows = np.ascontiguousarray(array)
      self._hash.update(rows)
      with open(_array_path(self._directory, name), "wb") as file:
        file.write(rows)
        file.flush()
        os.fsync(file.fileno())

  def finish(self, *, settings: Mapping[str, Setting], order: str, seed: int) -> Manifest:
    """Writes the manifest that makes the directory readable."""
    manifest = Manifest(
      settings=dict(settings),
      order=order,
      seed=seed,
      num_examples=tuple(self._num_examples),
      features=self._features,
      arrays=self._arrays,
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


class PreparedBatches(Iterator[Features]):
  """Batches of one stream of prepared examples: shuffled ones for ever, others in one pass.

  The last batch of a pass is filled up with zeros (zero weights), that of an epoch with the first
  examples of the next one, which is the same again. The position is the number of examples read.

  Args:
    directory: of prepared examples.
    manifest: of the directory.
    stream: which one.
    batch_size: examples a batch.

  Raises:
    ValueError: if a file has not the size that the manifest tells, or a batch is larger than all.
  """

  def __init__(self, directory: str, *, manifest: Manifest, stream: int, batch_size: int):
    self._num_examples = manifest.num_examples[stream]
    self._for_ever = manifest.order == "shuffled"
    self._fingerprint = np.frombuffer(manifest.fingerprint.encode(), np.uint8)
    self._directory = directory
    self._batch_size = batch_size
    self._read = 0
    if self._for_ever and self._num_examples < batch_size:
      raise ValueError(
        f"{directory} holds {self._num_examples} examples for stream {stream}, less than the "
        f"{batch_size} of its part of a batch; prepare more, or lower batch_size"
      )
    self._arrays = {
      name: _open_array(_path(directory, stream, name), record, (self._num_examples, *record.shape))
      for name, record in manifest.features.items()
    }
    self._dtypes = {name: record.dtype for name, record in manifest.features.items()}

  def __next__(self) -> Features:
    rows = np.arange(self._read, self._read + self._batch_size)
    if not self._for_ever:
      rows = rows[rows < self._num_examples]
      if not len(rows):
        raise StopIteration
    self._read += self._batch_size
    batch = {}
    for name, array in self._arrays.items():
      found = array[rows % self._num_examples].astype(self._dtypes[name])
      missing = self._batch_size - len(found)
      batch[name] = np.pad(found, [(0, missing)] + [(0, 0)] * (found.ndim - 1))
    return batch

  def position(self) -> Features:
    """Returns how many examples were read, and of what."""
    return {_POSITION: np.array([self._read]), _FINGERPRINT: self._fingerprint}

  def restore(self, position: Features) -> None:
    """Continues from a saved position.

    Raises:
      ValueError: if it is one of other examples.
    """
    if _POSITION not in position or not np.array_equal(position[_FINGERPRINT], self._fingerprint):
      raise ValueError(
        f"the run to be continued read other examples than those in {self._directory}; give it the "
        "same ones, or choose another workdir"
      )
    self._read = int(np.asarray(position[_POSITION])[0])


def is_prepared(directory: str | os.PathLike) -> bool:
  """Returns whether a directory holds prepared examples."""
  return (object_store.absolute(directory) / MANIFEST_FILE).exists()


def read_manifest(directory: str | os.PathLike) -> Manifest:
  """Reads and checks a manifest.

  Raises:
    FileNotFoundError: if the directory has none.
    ValueError: if it is not one that a `Writer` wrote.
  """
  path = os.path.join(directory, MANIFEST_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(f"no {path}; make it with `realm prepare_examples`")
  with open(path, encoding="utf-8") as file:
    content = json.load(file)
  try:
    if content["format_version"] != FORMAT_VERSION:
      raise ValueError(f"format {content['format_version']}, not {FORMAT_VERSION}")
    features, arrays = (_records(content.get(kind, {})) for kind in ("features", "arrays"))
    counts = tuple(map(int, content["num_examples"]))
    return Manifest(**{**content, "features": features, "arrays": arrays, "num_examples": counts})
  except (KeyError, TypeError, AttributeError, ValueError) as error:
    raise ValueError(f"{path} is no manifest of prepared examples: {error!r}") from error


def _records(found: dict) -> dict[str, FeatureRecord]:
  records = {
    name: FeatureRecord(**{**record, "shape": tuple(map(int, record["shape"]))})
    for name, record in found.items()
  }
  for name, record in records.items():
    known = record.dtype in _DTYPES and record.stored_dtype in _STORED_DTYPES
    if not name.isidentifier() or not known:
      raise ValueError(f"feature {name!r} is {record}")
  return records


def read_arrays(directory: str) -> dict[str, np.ndarray]:
  """Returns the arrays that belong to prepared examples as a whole, memory-mapped.

  Raises:
    FileNotFoundError: if the examples are not there.
    ValueError: if a file has not the size that the manifest tells.
  """
  local = object_store.local_copy(directory, MANIFEST_FILE, "*.bin")
  return {
    name: _open_array(_array_path(local, name), record, record.shape)
    for name, record in read_manifest(local).arrays.items()
  }


def open_batches(
  directory: str,
  *,
  settings: Mapping[str, Setting],
  order: str,
  batch_size: int,
  shard: Shard | None = None,
) -> PreparedBatches:
  """Opens prepared examples as `input_pipeline.task_batches` opens a task.

  Args:
    directory: of prepared examples; one in an object store is copied to the local cache.
    settings: what they must have been made with.
    order: "shuffled" or "corpus".
    batch_size: examples a batch.
    shard: the part of the data this process reads; as many must have been prepared.

  Raises:
    FileNotFoundError: if they are not there.
    ValueError: if they were made with other settings, in another order or number of streams.
  """
  local = object_store.local_copy(directory, MANIFEST_FILE, "*.bin")
  manifest = read_manifest(local)
  wanted = {**settings, "order": order, "data_streams": 1 if shard is None else shard.num_shards}
  found = {
    **manifest.settings,
    "order": manifest.order,
    "data_streams": len(manifest.num_examples),
  }
  differences = [
    f"{name}={found.get(name)}, here {wanted.get(name)}"
    for name in sorted(wanted.keys() | found.keys())
    if wanted.get(name) != found.get(name)
  ]
  if differences:
    raise ValueError(
      f"the examples in {directory} were prepared with {'; '.join(differences)}; prepare them anew "
      "or change the setting"
    )
  stream = 0 if shard is None else shard.index
  return PreparedBatches(local, manifest=manifest, stream=stream, batch_size=batch_size)


def _open_array(path: str, record: FeatureRecord, shape: tuple[int, ...]) -> np.ndarray:
  dtype = np.dtype(record.stored_dtype)
  expected = int(np.prod(shape)) * dtype.itemsize
  size = os.path.getsize(path) if os.path.exists(path) else None
  if size != expected:
    raise ValueError(f"{path} has {size} bytes instead of {expected}; prepare the examples anew")
  if not expected:
    return np.zeros(shape, dtype)
  return np.memmap(path, dtype, mode="r", shape=shape)


def _path(directory: str, stream: int, name: str) -> str:
  return os.path.join(directory, f"stream_{stream:03d}.{name}.bin")


def _array_path(directory: str, name: str) -> str:
  return os.path.join(directory, f"{name}.bin")
