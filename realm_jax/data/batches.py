"""Batches of examples as numpy arrays, from any source; needs no TensorFlow."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import jax
import numpy as np

from realm_jax.devices import processes
from realm_jax.devices.datatypes import MaskedQueries, Questions, Tokens

Features = dict[str, np.ndarray]
Masking = Literal["salient_span", "random_span", "random_token", "passage_tokens"]
# Changes when tasks make other examples from a seed, or their iterators have other positions.
PIPELINE = 5
# Why examples could not be masked, in the order of the pipeline's counts.
REJECTIONS = ("no_salient_span", "no_wordpiece_in_span", "mask_cut_by_truncation")


class TooFewExamplesError(ValueError):
  """A stream of the data has no examples."""


@dataclasses.dataclass(frozen=True)
class Shard:
  """One of `num_shards` equal parts of the data."""

  index: int
  num_shards: int

  @classmethod
  def of(cls, index: int, num_shards: int) -> "Shard | None":
    """Returns a part; None is the whole, the only part."""
    return cls(index, num_shards) if num_shards > 1 else None


class Batches(Iterator[Features], abc.ABC):
  """Batches of examples, with a position that can be saved and restored."""

  @abc.abstractmethod
  def position(self) -> Features:
    """Returns arrays that tell what was read."""

  @abc.abstractmethod
  def restore(self, position: Features) -> None:
    """Continues from a saved position of the same examples.

    Raises:
      ValueError: If it belongs to other examples.
    """


class Streams(Batches):
  """Batches joined from equal streams of the data; every process reads its own streams.

  The global batch does not depend on the number of processes.

  Args:
    open_stream: `(batch_size=..., shard=...) -> Batches`.
    num_streams: Number of streams; None uses one per process.
    batch_size: Examples per batch over all streams.

  Attributes:
    num_own: Number of streams of this process; their rows are adjacent in a batch.

  Raises:
    ValueError: If processes cannot share the streams equally, or streams the batch; in all
      processes, if one of them cannot open its streams.
  """

  def __init__(
    self, open_stream: Callable[..., Batches], *, num_streams: int | None, batch_size: int
  ):
    count = jax.process_count() if num_streams is None else num_streams
    if count < 1 or count % jax.process_count() or batch_size % count:
      raise ValueError(
        f"{count} data streams must be a multiple of the {jax.process_count()} processes and "
        f"divide batch_size={batch_size}; change data_streams or batch_size"
      )
    self.num_own = count // jax.process_count()
    first = jax.process_index() * self.num_own

    failure: Exception | None = None
    try:
      self._streams = {
        f"stream_{i}_of_{count}.": open_stream(
          batch_size=batch_size // count, shard=Shard.of(i, count)
        )
        for i in range(first, first + self.num_own)
      }
    except TooFewExamplesError as error:
      fewer = range(count - jax.process_count(), 0, -jax.process_count())
      enough = most_streams(open_stream, [n for n in fewer if batch_size % n == 0])
      failure = error
      if enough is not None:
        failure = ValueError(f"{error}; there are enough for data_streams={enough}")
      elif jax.process_count() > 1:
        failure = ValueError(
          f"{error}; {jax.process_count()} processes need at least as many examples"
        )
    except (OSError, ValueError) as error:
      failure = error
    # The others would wait for a process that ends.
    failures = processes.share(failure and str(failure))
    if failure is not None:
      raise failure
    if other := next(filter(None, failures), None):
      raise ValueError(other)

  def __next__(self) -> Features:
    parts = [next(stream) for stream in self._streams.values()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

  def position(self) -> Features:
    """Returns the positions of this process's streams."""
    return {
      prefix + name: content
      for prefix, stream in self._streams.items()
      for name, content in stream.position().items()
    }

  def restore(self, position: Features) -> None:
    """Continues from the saved positions of all processes, whatever their number.

    Raises:
      ValueError: If the data were read in a different number of streams.
    """
    for prefix, stream in self._streams.items():
      own = {n.removeprefix(prefix): v for n, v in position.items() if n.startswith(prefix)}
      if not own:
        saved = sorted({name.split(".")[0] for name in position})
        raise ValueError(
          f"the saved run read its data as {saved[0]}, this one reads {prefix[:-1]}; use the same "
          "data_streams"
        )
      stream.restore(own)


def most_streams(open_stream: Callable[..., Batches], counts: Iterable[int]) -> int | None:
  """Returns the first number of streams of which each has examples to train on, or None."""
  for count in counts:
    try:
      for index in reversed(range(count)):  # the last are the first to be empty
        open_stream(batch_size=1, shard=Shard.of(index, count))
      return count
    except TooFewExamplesError:
      continue
  return None


def masked_queries(features: Features) -> MaskedQueries:
  """Returns the `MaskedQueries` of a batch of masked queries."""
  return MaskedQueries(
    query=tokens(features["query"]),
    mlm_positions_BxM=features["mlm_positions"],
    mlm_targets_BxM=features["mlm_targets"],
    mlm_weights_BxM=features["mlm_weights"],
    source_uid_B=features["source_uid"][:, 0],
  )


def counted_queries(
  features: Features, *, num_streams: int
) -> tuple[MaskedQueries, dict[str, float]]:
  """Returns a batch of queries with the counts of examples rejected so far, by reason."""
  by_stream = np.split(features["rejections"], num_streams)
  rejected = np.sum([rows.max(axis=0) for rows in by_stream], axis=0)
  counts = zip(REJECTIONS, rejected, strict=True)
  return masked_queries(features), {f"data/rejected_{reason}": float(n) for reason, n in counts}


def questions(features: Features) -> Questions:
  """Returns the `Questions` of a batch of questions."""
  query = tokens(features["query"])
  return Questions(
    query=query,
    index_B=features["question_index"][:, 0].astype(np.int32),
    weights_B=query.mask.any(axis=1).astype(np.float32),
  )


def tokens(ids: np.ndarray, segments: np.ndarray | None = None) -> Tokens:
  """Returns `Tokens` from padded ids; segments default to 0."""
  return Tokens(
    ids=ids, mask=ids != 0, segments=np.zeros(ids.shape, np.int32) if segments is None else segments
  )
