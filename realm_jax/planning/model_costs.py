"""Closed-form arithmetic and memory of BERT encoders and of a REALM training step."""

import dataclasses

LANES = 128  # accelerators pad an array's last dimension to a multiple of this


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoder:
  """Sizes of a BERT.

  Attributes:
    mlp: Width of the feed-forward layer.
    bytes_per_activation: 2 for bfloat16, 4 for float32.
    remat: Whether the backward pass recomputes each layer.
    fused: Whether attention is one kernel and layers keep only the results of their products.
  """

  layers: int
  width: int
  heads: int
  mlp: int
  vocab: int
  bytes_per_activation: int
  remat: bool
  fused: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
  """Sequences that one encoder reads in a step.

  Attributes:
    sequences: Number of sequences, on average.
    length: Wordpieces per sequence, including padding.
    positions: Positions per sequence whose last-layer vectors are computed.
    words: Positions per sequence at which words are predicted.
  """

  encoder: Encoder
  sequences: float
  length: int
  positions: int
  words: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
  """Estimated memory of one device during a training step, in bytes.

  Attributes:
    parameters: Parameters as kept between steps.
    activations: Activations kept for the backward pass, gradients, and gathered parameters.
    search_shard: Passage embeddings, if the devices search.
  """

  parameters: int
  optimizer: int
  activations: int
  batch: int
  search_shard: int

  @property
  def state(self) -> int:
    """Bytes kept between steps."""
    return self.parameters + self.optimizer

  @property
  def step(self) -> int:
    """Bytes of the training step."""
    return self.state + self.activations + self.batch

  @property
  def total(self) -> int:
    return self.step + self.search_shard


def forward_flops(work: Pass) -> float:
  """Returns the multiplications and additions of the matrix products in the forward pass."""
  e, length, positions = work.encoder, work.length, work.positions
  dense = 8 * e.width**2 + 4 * e.width * e.mlp
  whole_layer = length * dense + 4 * length**2 * e.width
  last_layer = (
    4 * length * e.width**2  # keys and values of all positions
    + positions * (dense - 4 * e.width**2)
    + 4 * positions * length * e.width
  )
  head = work.words * 2 * e.width * (e.width + e.vocab)
  return work.sequences * ((e.layers - 1) * whole_layer + last_layer + head)


def training_flops(passes: list[Pass]) -> float:
  """Returns the operations of a training step: forward, backward (twice as many), recomputation."""
  return sum((4 if work.encoder.remat else 3) * forward_flops(work) for work in passes)


def model_flops(passes: list[Pass]) -> float:
  """Returns the operations that a training step needs, without recomputation."""
  return sum(3 * forward_flops(work) for work in passes)


def activation_bytes(passes: list[Pass]) -> float:
  """Returns the bytes that a device keeps for the backward pass of its own sequences."""
  return sum(_kept_bytes(work) for work in passes)


def _kept_bytes(work: Pass) -> float:
  e = work.encoder
  tokens = work.sequences * work.length
  a = e.bytes_per_activation
  layer_input = tokens * e.width * a
  # Queries, keys, values and the attention output; heads narrower than a lane row are padded to it.
  per_head = _padded(e.width // e.heads) * e.heads
  attention = tokens * (4 * per_head * a + e.heads * _padded(work.length) * a)
  # Both residual branches before and after their norm, and the feed-forward layer before and after
  # its nonlinearity.
  rest = tokens * (4 * e.width + 2 * e.mlp) * a
  inner = layer_input + attention + rest
  words = work.sequences * work.words * _padded(e.vocab) * 4
  if e.fused:
    # Queries, keys and values packed, the context, both sums and both norms, and the feed-forward
    # layer before its nonlinearity. One layer at a time has as much again while it is recomputed.
    inner = tokens * (8 * e.width + e.mlp) * a
    return ((1 if e.remat else e.layers) + 1) * inner + e.remat * e.layers * layer_input + 2 * words
  if e.remat:
    return e.layers * layer_input + inner + 2 * words
  return (e.layers - 1) * inner + layer_input + attention + 2 * words


def _padded(size: int) -> int:
  return -(-size // LANES) * LANES
