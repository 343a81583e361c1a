"""Examples as memory-mapped arrays, in the order in which training reads them.

An array folder has one array of fixed-size rows for every stream and feature. Reading needs no
TensorFlow.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping

import numpy as np

from realm_jax.data.batches import Batches, Features, Shard
from realm_jax.foundations import array_folder
from realm_jax.foundations.array_folder import Folder, FolderKind

EXAMPLES = FolderKind(
  name="a directory of prepared examples",
  kind="examples",
  format=2,
  remake="write it with `realm prepare_examples`",
)
_DTYPES = ("int32", "int64", "float32")  # of features
_STREAM = "stream_"  # begins the names of features
_POSITION, _FINGERPRINT = "examples_read", "fingerprint"

Setting = str | int | float | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
  """Description of a directory of prepared examples.

  Attributes:
    settings: What determined the examples, such as task, vocabulary and lengths; a reader compares
      them with its own.
    order: "shuffled", to train on repeatedly, or "corpus", one pass to evaluate on.
    seed: Seeded the order and the masks.
    num_examples: Number of examples of each stream.
    dtypes: The dtype of each feature.
    fingerprint: Digest of all rows and arrays.
    selection: How some of the examples were chosen; empty if all were kept.
  """

  settings: dict[str, Setting]
  order: str
  seed: int
  num_examples: tuple[int, ...]
  dtypes: dict[str, str]
  fingerprint: str
  selection: dict[str, Setting] = dataclasses.field(default_factory=dict)


class Writer:
  """Writes the examples of one stream after another without keeping them in memory."""

  def __init__(self, directory: str, *, vocab_size: int):
    self._folder = array_folder.Writer(directory, kind=EXAMPLES)
    self._id_dtype = "uint16" if vocab_size <= 2**16 else "int32"
    self._dtypes: dict[str, str] = {}
    self._num_examples: list[int] = []

  def write_stream(self, parts: Iterable[Features]) -> int:
    """Appends the next stream, given in parts of any size; returns its number of examples."""
    stream, count = len(self._num_examples), 0
    columns: dict[str, array_folder.Column] = {}
    for part in parts:
      self._dtypes = self._dtypes or {name: part[name].dtype.name for name in sorted(part)}
      for name, dtype in self._dtypes.items():
        if dtype not in _DTYPES:
          raise ValueError(f"a feature of {dtype} cannot be stored; {', '.join(_DTYPES)} can")
        stored = self._id_dtype if dtype == "int32" else dtype
        rows = part[name].astype(stored)
        if not np.array_equal(rows, part[name]):
          raise ValueError(f"{name} has values that {stored} cannot represent")
        if name not in columns:
          columns[name] = self._folder.column(_name(stream, name), stored, rows.shape[1:])
        columns[name].append(array_folder.as_bytes(rows))
      count += len(rows)
    self._num_examples.append(count)
    return count

  def write_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays that belong to the examples as a whole, such as the labels of questions."""
    for name, array in arrays.items():
      self._folder.write(name, array)

  def finish(
    self,
    *,
    settings: Mapping[str, Setting],
    order: str,
    seed: int,
    selection: Mapping[str, Setting] | None = None,
  ) -> Manifest:
    """Writes what makes the directory readable; see `Manifest`."""
    manifest = Manifest(
      settings=dict(settings),
      order=order,
      seed=seed,
      num_examples=tuple(self._num_examples),
      dtypes=self._dtypes,
      selection=dict(selection or {}),
      fingerprint=array_folder.digest(self._folder.records()),
    )
    self._folder.finish(manifest)
    return manifest


class PreparedBatches(Batches):
  """Batches of one stream of prepared examples: shuffled ones repeat, others are read once.

  The last batch of a single pass is padded with zeros (zero weights). A batch across the end of an
  epoch continues with the first examples of the next epoch, which has the same order. The position
  is the number of examples read.

  Raises:
    ValueError: If a file has another size than it should, or a shuffled stream is smaller than a
      batch.
  """

  def __init__(self, folder: Folder[Manifest], *, stream: int, batch_size: int):
    manifest, directory = folder.description, folder.directory
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
    self._arrays = folder.mapped(_name(stream, name) for name in manifest.dtypes)
    self._dtypes = manifest.dtypes
    for name, array in self._arrays.items():
      if len(array) != self._num_examples:
        raise ValueError(f"{directory} has {len(array)} rows of {name}; {EXAMPLES.remake}")

  def __next__(self) -> Features:
    rows = np.arange(self.examples_read, self.examples_read + self._batch_size)
    if not self._repeats:
      rows = rows[rows < self._num_examples]
      if not len(rows):
        raise StopIteration
    self.examples_read += self._batch_size
    batch = {}
    for (name, dtype), array in zip(self._dtypes.items(), self._arrays.values(), strict=True):
      found = array[rows % self._num_examples].astype(dtype)
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


def read_manifest(directory: str | os.PathLike) -> Manifest:
  """Reads the manifest of prepared examples; see `Folder` for errors."""
  return _open(directory).description


def read_arrays(directory: str) -> dict[str, np.ndarray]:
  """Returns the arrays that belong to prepared examples as a whole, memory-mapped."""
  folder = _open(directory)
  return folder.mapped(name for name in folder.records if not name.startswith(_STREAM))


def _open(directory: str | os.PathLike) -> Folder[Manifest]:
  return Folder(directory, kind=EXAMPLES, of=Manifest)


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
  folder = _open(directory)
  manifest = folder.description
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
  return PreparedBatches(folder, stream=stream, batch_size=batch_size)


def _name(stream: int, feature: str) -> str:
  return f"{_STREAM}{stream:03d}.{feature}"
