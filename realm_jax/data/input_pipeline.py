"""Batches of a SeqIO task as numpy arrays, with a position that can be saved and restored."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
import seqio
import tensorflow as tf

from realm_jax.datatypes import MaskedQueries, Tokens

Features = dict[str, np.ndarray]


class BatchIterator(Iterator[Features]):
  """Iterates over batches of numpy arrays.

  The position, random state and shuffle buffer of the whole pipeline are part of `position()`, so
  that a restored iterator yields what the saved one would have yielded.

  Args:
    dataset: a dataset of batches whose operations are all stateless.
  """

  def __init__(self, dataset: tf.data.Dataset):
    self._iterator = iter(dataset)
    self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)

  def __next__(self) -> Features:
    return {name: value.numpy() for name, value in next(self._iterator).items()}

  def position(self) -> Features:
    """Returns the files of the iterator's state as uint8 arrays."""
    with tempfile.TemporaryDirectory() as directory:
      self._checkpoint.write(os.path.join(directory, "iterator"))
      return {
        name: np.fromfile(os.path.join(directory, name), np.uint8)
        for name in sorted(os.listdir(directory))
      }

  def restore(self, position: Features) -> None:
    """Continues from a saved position of an equal dataset."""
    with tempfile.TemporaryDirectory() as directory:
      for name, content in position.items():
        np.asarray(content, np.uint8).tofile(os.path.join(directory, os.path.basename(name)))
      self._checkpoint.read(os.path.join(directory, "iterator")).assert_consumed()


class Streams(Iterator[Features]):
  """Batches joined from equal parts of the data, of which every process reads its own.

  The batch of all processes is the same whatever their number.

  Args:
    open_stream: `(batch_size=..., shard=...) -> BatchIterator`.
    num_streams: parts of the data; None: as many as there are processes.
    batch_size: examples of all streams.

  Attributes:
    num_own: streams of this process, whose rows follow one another in a batch.

  Raises:
    ValueError: if the streams cannot be shared equally, or share no batch equally.
  """

  def __init__(
    self, open_stream: Callable[..., BatchIterator], *, num_streams: int | None, batch_size: int
  ):
    count = jax.process_count() if num_streams is None else num_streams
    if count < 1 or count % jax.process_count() or batch_size % count:
      raise ValueError(
        f"{count} data streams must be a multiple of the {jax.process_count()} processes and "
        f"divide batch_size={batch_size}; change data_streams or batch_size"
      )
    self.num_own = count // jax.process_count()
    first = jax.process_index() * self.num_own
    self._streams = {
      f"stream_{i}_of_{count}.": open_stream(
        batch_size=batch_size // count,
        shard=seqio.ShardInfo(index=i, num_shards=count) if count > 1 else None,
      )
      for i in range(first, first + self.num_own)
    }

  def __next__(self) -> Features:
    parts = [next(stream) for stream in self._streams.values()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

  def position(self) -> Features:
    """Returns the positions of the streams of this process."""
    return {
      prefix + name: content
      for prefix, stream in self._streams.items()
      for name, content in stream.position().items()
    }

  def restore(self, position: Features) -> None:
    """Continues from the saved positions of all processes, however many they were.

    Raises:
      ValueError: if the data were read in another number of streams.
    """
    for prefix, stream in self._streams.items():
      own = {n.removeprefix(prefix): v for n, v in position.items() if n.startswith(prefix)}
      if not own:
        saved = sorted({name.split(".")[0] for name in position})
        raise ValueError(
          f"the run to be continued read its data as {saved[0]}, now as {prefix[:-1]}; give the "
          "same data_streams as before"
        )
      stream.restore(own)


def task_batches(
  task: seqio.Task | seqio.Mixture | str,
  *,
  converter: seqio.FeatureConverter,
  lengths: dict[str, int],
  batch_size: int,
  seed: int,
  training: bool,
  shard: seqio.ShardInfo | None = None,
  buckets: Sequence[int] = (),
) -> BatchIterator:
  """Opens a SeqIO task.

  Args:
    task: a registered task or mixture, or its name.
    converter: makes the model's features.
    lengths: of the task's features.
    batch_size: examples a batch.
    seed: of shuffling and masking.
    training: whether to shuffle and repeat for ever; otherwise one pass in order, the last batch
      filled up with zeros (zero weights).
    shard: the part of the data this process reads.
    buckets: in training, lengths in ascending order, the last of them the longest: a batch holds
      examples whose features, which the converter left unpadded, fit into one of these and not
      into the one before, and is padded to it.
  """
  if training:
    _check_for_examples(task, lengths)
  dataset = seqio.get_dataset(
    task,
    lengths,
    converter,
    dataset_split="train",
    shuffle=training,
    num_epochs=None if training else 1,
    shard_info=shard,
    verbose=False,
    seed=seed,
  )
  if training and buckets:
    dataset = dataset.bucket_by_sequence_length(
      lambda features: tf.reduce_max([tf.size(values) for values in features.values()]),
      bucket_boundaries=[length + 1 for length in buckets],
      bucket_batch_sizes=[batch_size] * (len(buckets) + 1),
      pad_to_bucket_boundary=True,
      drop_remainder=True,
    )
  elif training:
    dataset = dataset.batch(batch_size, drop_remainder=True)
  else:
    dataset = dataset.padded_batch(batch_size).map(lambda batch: _fill(batch, batch_size))
  return BatchIterator(dataset.prefetch(tf.data.AUTOTUNE))


def _check_for_examples(task: seqio.Task | seqio.Mixture | str, lengths: dict[str, int]) -> None:
  """Raises ValueError if one pass gives nothing: repeated for ever it would never end."""
  task = seqio.get_mixture_or_task(task) if isinstance(task, str) else task
  once = task.get_dataset(lengths, split="train", shuffle=False, num_epochs=1, seed=0)
  if not any(True for _ in once.take(1)):
    raise ValueError(f"{task.name} gives no example: its corpus is empty or all was rejected")


def masked_queries(features: Features) -> MaskedQueries:
  """Makes a `MaskedQueries` of a batch of `MaskedQueryConverter`'s features."""
  return MaskedQueries(
    query=tokens(features["query"]),
    mlm_positions_BxM=features["mlm_positions"],
    mlm_targets_BxM=features["mlm_targets"],
    mlm_weights_BxM=features["mlm_weights"],
    source_uid_B=features["source_uid"][:, 0],
  )


def tokens(ids: np.ndarray, segments: np.ndarray | None = None) -> Tokens:
  """Makes `Tokens` of padded ids; without segments all are 0."""
  return Tokens(
    ids=ids,
    mask=ids != 0,
    segments=np.zeros(ids.shape, np.int32) if segments is None else segments,
  )


def _fill(batch, batch_size: int):
  return {
    name: tf.pad(value, [[0, batch_size - tf.shape(value)[0]]] + [[0, 0]] * (len(value.shape) - 1))
    for name, value in batch.items()
  }
