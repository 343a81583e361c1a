"""Costs of an index generation: time to embed and build it, bytes, and staleness."""

import dataclasses
import math

# Multiplications and additions per second and core while ScaNN trains and assigns (assumed).
_CORE_FLOPS = 10e9
_KMEANS_ROUNDS = 12
_PROCESS_BYTES = 8 * 2**30
_NETWORK_BYTES_PER_SECOND = 200e6  # of a host, including checking digests (assumed)
_ASSEMBLY_BYTES_PER_SECOND = 500e6  # of embeddings that ScaNN loads: 1 ms per 1,000 of 128 float32
_LEAVES_TRIED = 7  # at most, to reach the target recall; see `publishing/index_recall.py`


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
    """Size of a generation on disk, and at most of a searcher in host memory."""
    if not self.shards:
      return self.embedding_bytes
    # ScaNN stores a code as a byte, the number of a leaf as 4, and a centre in float64.
    centres = self.shards * self.leaves * self.width * 8
    return self.embedding_bytes + self.passages * (self.codes + 4) + centres

  @property
  def codes(self) -> int:
    """Number of codes of a passage."""
    return math.ceil(self.width / self.dimensions_per_code)


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


def measure_seconds(index: Index, *, queries: int, cores: int, hosts: int) -> float:
  """Returns the time to measure recall: an exact search, and one for each number of leaves.

  Args:
    cores: Cores of all hosts; each host searches its own shards.
  """
  if not index.shards:
    return 0.0
  of_a_passage = 2 * index.width + _LEAVES_TRIED * index.codes
  searching = queries * index.passages * of_a_passage / (cores * _CORE_FLOPS)
  return searching + _assembly_seconds(index) / hosts


def load_seconds(index: Index) -> float:
  """Returns the time that a trainer takes to load a generation."""
  return transfer_seconds(index.bytes) + _assembly_seconds(index)


def transfer_seconds(num_bytes: float) -> float:
  """Returns the time that a host takes to read or write bytes in shared storage."""
  return num_bytes / _NETWORK_BYTES_PER_SECOND


def _assembly_seconds(index: Index) -> float:
  return index.embedding_bytes / _ASSEMBLY_BYTES_PER_SECOND if index.shards else 0.0


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
  """Seconds that a generation takes, from the step of its checkpoint to the swap.

  Attributes:
    save: To write the checkpoint.
    polls: Until the builder sees the checkpoint, and the trainer the generation, on average.
    read: To read the encoders.
    measure: To measure recall and choose the number of leaves.
    write: To write the generation.
    load: To load it; all hosts of the trainer do so at the same time.
  """

  save: float = 0.0
  polls: float = 0.0
  read: float = 0.0
  embed: float
  build: float
  measure: float = 0.0
  write: float = 0.0
  load: float

  @property
  def index(self) -> float:
    """Seconds of the builder after it has embedded the passages."""
    return self.build + self.measure + self.write

  @property
  def making(self) -> float:
    """Seconds for which the builder is busy."""
    return self.read + self.embed + self.index

  @property
  def all(self) -> float:
    return self.save + self.polls + self.making + self.load


def staleness(times: Times, *, step_seconds: float, checkpoint_every: int) -> Staleness:
  """Returns the steady-state staleness of an index builder that follows the newest checkpoint.

  A builder slower than the checkpoints uses one that is up to `checkpoint_every` steps old; a
  faster one waits for each checkpoint. The trainer loads a generation while the builder makes the
  next.
  """
  making = times.making
  between_checkpoints = checkpoint_every * step_seconds
  cycle = max(making, between_checkpoints)
  age_of_checkpoint = checkpoint_every if making > between_checkpoints else 0
  at_swap = math.ceil(times.all / step_seconds)
  return Staleness(
    at_swap=at_swap,
    at_most=at_swap + math.ceil(cycle / step_seconds) + age_of_checkpoint,
    generation_seconds=cycle,
  )
