"""Batches of a SeqIO task as numpy arrays: fixed shapes, and a position that can be restored."""

import functools
import os
import tempfile

import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data.batches import Batches, Features, Shard, TooFewExamplesError

_POSITION = "iterator"
_PREFETCHED = 2  # batches
# Closing a pipeline waits for its tuning thread, which can sleep for up to a minute.
_UNTUNED = tf.data.Options()
_UNTUNED.autotune.enabled = False


class BatchIterator(Batches):
  """Iterates over batches of numpy arrays.

  `position()` includes the position, random state and shuffle buffer of the whole pipeline, so a
  restored iterator yields what the saved one would have yielded. All its operations must be
  stateless.
  """

  def __init__(self, dataset: tf.data.Dataset):
    self._iterator = iter(dataset.with_options(_UNTUNED))
    self._checkpoint = tf.train.Checkpoint(iterator=self._iterator)

  def __next__(self) -> Features:
    return {name: value.numpy() for name, value in next(self._iterator).items()}

  def position(self) -> Features:
    """Returns the files of the iterator's checkpoint as uint8 arrays."""
    with tempfile.TemporaryDirectory() as directory:
      self._checkpoint.write(os.path.join(directory, _POSITION))
      return {
        name: np.fromfile(os.path.join(directory, name), np.uint8)
        for name in sorted(os.listdir(directory))
      }

  def restore(self, position: Features) -> None:
    if not any(name.startswith(_POSITION) for name in position):
      raise ValueError(
        "the saved run read prepared examples; use the same examples or another workdir"
      )
    with tempfile.TemporaryDirectory() as directory:
      for name, content in position.items():
        np.asarray(content, np.uint8).tofile(os.path.join(directory, os.path.basename(name)))
      self._checkpoint.read(os.path.join(directory, _POSITION)).assert_consumed()


@tf.autograph.experimental.do_not_convert  # takes a second, and finds no control flow
def task_batches(
  task: seqio.Task | seqio.Mixture | str,
  *,
  lengths: dict[str, int],
  batch_size: int,
  seed: int,
  training: bool,
  shard: Shard | None = None,
) -> BatchIterator:
  """Opens a SeqIO task.

  Args:
    task: A registered task or mixture, or its name.
    seed: Seeds shuffling and masking.
    training: Whether to shuffle and repeat indefinitely. Otherwise makes one pass in order and pads
      the last batch with zeros (zero weights).
    shard: The part of the data that this process reads.

  Raises:
    TooFewExamplesError: If a part to train on has no examples.
  """
  task = seqio.get_mixture_or_task(task) if isinstance(task, str) else task
  shard_info = shard and seqio.ShardInfo(shard.index, shard.num_shards)
  if training:
    _check_for_examples(task, tuple(lengths.items()), shard_info)
  dataset = seqio.get_dataset(
    task,
    lengths,
    seqio.PassThroughFeatureConverter(),  # tasks pad their features themselves
    dataset_split="train",
    shuffle=training,
    num_epochs=None if training else 1,
    shard_info=shard_info,
    verbose=False,
    seed=seed,
    trim_output_features=False,  # tasks do, and this takes longer than masking
  )
  if training:
    dataset = dataset.batch(batch_size, drop_remainder=True)
  else:
    dataset = dataset.padded_batch(batch_size).map(lambda batch: _fill(batch, batch_size))
  return BatchIterator(dataset.prefetch(_PREFETCHED))


@functools.lru_cache  # building another pipeline takes seconds
def _check_for_examples(
  task: seqio.Task | seqio.Mixture,
  lengths: tuple[tuple[str, int], ...],
  shard_info: seqio.ShardInfo | None,
) -> None:
  """Raises TooFewExamplesError if one pass yields no examples, which nothing can repeat."""
  once = task.get_dataset(
    dict(lengths), split="train", shuffle=False, num_epochs=1, seed=0, shard_info=shard_info
  )
  if not any(True for _ in once.take(1).with_options(_UNTUNED)):
    if shard_info is None:
      raise TooFewExamplesError(
        f"{task.name} yields no examples: its corpus is empty, or all are rejected"
      )
    raise TooFewExamplesError(
      f"{task.name} yields no examples for stream {shard_info.index} of {shard_info.num_shards}"
    )


def _fill(batch, batch_size: int):
  return {
    name: tf.pad(value, [[0, batch_size - tf.shape(value)[0]]] + [[0, 0]] * (len(value.shape) - 1))
    for name, value in batch.items()
  }
