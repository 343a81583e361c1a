"""Costs of an index generation: time to embed and build it, bytes, and staleness."""

import dataclasses
import math

# Multiplications and additions per second and core while ScaNN trains and assigns (assumed).
_CORE_FLOPS = 10e9
_KMEANS_ROUNDS = 12
_PROCESS_BYTES = 8 * 2**30
_LOAD_BYTES_PER_SECOND = 200e6  # over the network, including checking digests (assumed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
  """Sizes of an index.

  Attributes:
    passages: Number of passages, N.
    width: Width of the embeddings, E.
    bytes_per_value: 4 for float32, 2 for bfloat16.
    shards: Number of ScaNN shards; 0 without ScaNN.
    leaves: K-means partitions per shard.
    training_rows: Rows that the partitions of a shard are trained on.
    dimensions_per_code: Embedding dimensions per 4-bit code.
  """

  passages: int
  width: int
  bytes_per_value: int
  shards: int
  leaves: int
  training_rows: int
  dimensions_per_code: int

  @property
  def embedding_bytes(self) -> int:
    return self.passages * self.width * self.bytes_per_value

  @property
  def bytes(self) -> int:
    """Size of a generation on disk, and of a searcher in host memory."""
    if not self.shards:
      return self.embedding_bytes
    codes = math.ceil(self.width / self.dimensions_per_code / 2)
    return self.embedding_bytes + self.passages * (codes + 4)


def build_seconds(index: Index, *, cores: int) -> float:
  """Returns the time to build the index on the cores of all hosts, excluding embedding."""
  if not index.shards:
    return 0.0
  rows = index.passages / index.shards
  per_row = 2 * index.width * index.leaves
  training = min(rows, index.training_rows) * _KMEANS_ROUNDS * per_row
  assignment = rows * (per_row + 2 * 16 * index.width)
  return index.shards * (training + assignment) / (cores * _CORE_FLOPS)


def host_bytes(index: Index) -> int:
  """Returns the host memory of a trainer: the program, and two generations during a swap."""
  return 2 * index.bytes + _PROCESS_BYTES


def load_seconds(index: Index) -> float:
  """Returns the time that a trainer takes to load a generation."""
  return index.bytes / _LOAD_BYTES_PER_SECOND


@dataclasses.dataclass(frozen=True, kw_only=True)
class Staleness:
  """Number of steps by which the index lags behind the parameters.

  Attributes:
    at_swap: Staleness when a generation is swapped in.
    at_most: Staleness just before the next swap.
    generation_seconds: Time between generations.
  """

  at_swap: int
  at_most: int
  generation_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
  """Seconds that a generation takes, from the checkpoint to the swap.

  Attributes:
    load: To load it; all hosts of the trainer do so at the same time.
  """

  embed: float
  build: float
  load: float

  @property
  def all(self) -> float:
    return self.embed + self.build + self.load


def staleness(times: Times, *, step_seconds: float, checkpoint_every: int) -> Staleness:
  """Returns the steady-state staleness of an index builder that follows the newest checkpoint.

  A builder slower than the checkpoints uses one that is up to `checkpoint_every` steps old; a
  faster one waits for each checkpoint. The trainer loads a generation while the builder makes the
  next.
  """
  making = times.embed + times.build
  between_checkpoints = checkpoint_every * step_seconds
  cycle = max(making, between_checkpoints)
  age_of_checkpoint = checkpoint_every if making > between_checkpoints else 0
  at_swap = math.ceil(times.all / step_seconds)
  return Staleness(
    at_swap=at_swap,
    at_most=at_swap + math.ceil(cycle / step_seconds) + age_of_checkpoint,
    generation_seconds=cycle,
  )
