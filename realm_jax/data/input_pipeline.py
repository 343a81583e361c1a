"""Batches of a SeqIO task as numpy arrays, with a position that can be saved and restored."""

import functools
import os
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data.batches import Features, Shard

# Some 50 MB of the released code's runs, which become part of every position.
_SHUFFLED_RUNS = 64
_POSITION = "iterator"
_PREFETCHED = 2  # batches
# The thread that tunes a pipeline looks again after up to a minute, and the end of the pipeline
# waits for it.
_UNTUNED = tf.data.Options()
_UNTUNED.autotune.enabled = False


class BatchIterator(Iterator[Features]):
  """Iterates over batches of numpy arrays.

  The position, random state and shuffle buffer of the whole pipeline are part of `position()`, so
  that a restored iterator yields what the saved one would have yielded.

  Args:
    dataset: a dataset of batches whose operations are all stateless.
  """

  def __init__(self, dataset: tf.data.Dataset):
    self._iterator = iter(dataset.with_options(_UNTUNED))
    self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)

  def __next__(self) -> Features:
    return {name: value.numpy() for name, value in next(self._iterator).items()}

  def position(self) -> Features:
    """Returns the files of the iterator's state as uint8 arrays."""
    with tempfile.TemporaryDirectory() as directory:
      self._checkpoint.write(os.path.join(directory, _POSITION))
      return {
        name: np.fromfile(os.path.join(directory, name), np.uint8)
        for name in sorted(os.listdir(directory))
      }

  def restore(self, position: Features) -> None:
    """Continues from a saved position of an equal dataset.

    Raises:
      ValueError: if the position is one of prepared examples.
    """
    if not any(name.startswith(_POSITION) for name in position):
      raise ValueError(
        "the run to be continued read prepared examples; give it the same ones, or choose another "
        "workdir"
      )
    with tempfile.TemporaryDirectory() as directory:
      for name, content in position.items():
        np.asarray(content, np.uint8).tofile(os.path.join(directory, os.path.basename(name)))
      self._checkpoint.read(os.path.join(directory, _POSITION)).assert_consumed()


def task_batches(
  task: seqio.Task | seqio.Mixture | str,
  *,
  converter: seqio.FeatureConverter,
  lengths: dict[str, int],
  batch_size: int,
  seed: int,
  training: bool,
  shard: Shard | None = None,
  buckets: Sequence[int] = (),
  run_length: int = 1,
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
    run_length: in training, how many examples that follow one another in the data stay together
      when shuffled.
  """
  task = seqio.get_mixture_or_task(task) if isinstance(task, str) else task
  if training:
    _check_for_examples(task, tuple(lengths.items()))
  dataset = seqio.get_dataset(
    task,
    lengths,
    converter,
    dataset_split="train",
    shuffle=training and run_length == 1,
    num_epochs=None if training else 1,
    shard_info=shard and seqio.ShardInfo(shard.index, shard.num_shards),
    verbose=False,
    seed=seed,
  )
  if training and run_length > 1:
    runs = dataset.batch(run_length, drop_remainder=True)
    dataset = runs.shuffle(_SHUFFLED_RUNS, seed=seed).unbatch()
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
  return BatchIterator(dataset.prefetch(_PREFETCHED))


@functools.lru_cache  # another pipeline takes seconds to build
def _check_for_examples(
  task: seqio.Task | seqio.Mixture, lengths: tuple[tuple[str, int], ...]
) -> None:
  """Raises ValueError if one pass gives nothing: repeated for ever it would never end."""
  once = task.get_dataset(dict(lengths), split="train", shuffle=False, num_epochs=1, seed=0)
  if not any(True for _ in once.take(1).with_options(_UNTUNED)):
    raise ValueError(f"{task.name} gives no example: its corpus is empty or all was rejected")


def _fill(batch, batch_size: int):
  return {
    name: tf.pad(value, [[0, batch_size - tf.shape(value)[0]]] + [[0, 0]] * (len(value.shape) - 1))
    for name, value in batch.items()
  }
