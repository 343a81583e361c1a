"""Closed-form arithmetic and memory of BERT encoders and of a REALM training step."""

import dataclasses

from realm_jax.models.bert import BertConfig

LANES = 128  # accelerators pad an array's last dimension to a multiple of this


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
  """Sequences that one encoder reads in a step.

  Attributes:
    sequences: Number of sequences, on average.
    length: Wordpieces per sequence, including padding.
    positions: Positions per sequence whose last-layer vectors are computed.
    words: Positions per sequence at which words are predicted.
    fused: Whether attention is one kernel and layers keep only the results of their products.
  """

  bert: BertConfig
  sequences: float
  length: int
  positions: int
  words: int = 0
  fused: bool = False


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
  bert, length, positions = work.bert, work.length, work.positions
  width = bert.hidden_size
  dense = 8 * width**2 + 4 * width * bert.mlp_size
  whole_layer = length * dense + 4 * length**2 * width
  last_layer = (
    4 * length * width**2  # keys and values of all positions
    + positions * (dense - 4 * width**2)
    + 4 * positions * length * width
  )
  head = work.words * 2 * width * (width + bert.vocab_size)
  return work.sequences * ((bert.num_layers - 1) * whole_layer + last_layer + head)


def training_flops(passes: list[Pass]) -> float:
  """Returns the operations of a training step: forward, backward (twice as many), recomputation."""
  return sum((4 if work.bert.remat else 3) * forward_flops(work) for work in passes)


def model_flops(passes: list[Pass]) -> float:
  """Returns the operations that a training step needs, without recomputation."""
  return sum(3 * forward_flops(work) for work in passes)


def activation_bytes(passes: list[Pass]) -> float:
  """Returns the bytes that a device keeps for the backward pass of its own sequences."""
  return sum(_kept_bytes(work) for work in passes)


def _kept_bytes(work: Pass) -> float:
  bert, width, layers = work.bert, work.bert.hidden_size, work.bert.num_layers
  tokens = work.sequences * work.length
  a = 2 if bert.compute_dtype == "bfloat16" else 4
  layer_input = tokens * width * a
  # Queries, keys, values and the attention output; heads narrower than a lane row are padded to it.
  per_head = _padded(width // bert.num_heads) * bert.num_heads
  attention = tokens * (4 * per_head * a + bert.num_heads * _padded(work.length) * a)
  # Both residual branches before and after their norm, and the feed-forward layer before and after
  # its nonlinearity.
  rest = tokens * (4 * width + 2 * bert.mlp_size) * a
  inner = layer_input + attention + rest
  words = work.sequences * work.words * _padded(bert.vocab_size) * 4
  if work.fused:
    # Queries, keys and values packed, the context, both sums and both norms, and the feed-forward
    # layer before its nonlinearity. One layer at a time has as much again while it is recomputed.
    inner = tokens * (8 * width + bert.mlp_size) * a
    inputs = layers * layer_input if bert.remat else 0
    return (1 + (1 if bert.remat else layers)) * inner + inputs + 2 * words
  if bert.remat:
    return layers * layer_input + inner + 2 * words
  return (layers - 1) * inner + layer_input + attention + 2 * words


def _padded(size: int) -> int:
  return -(-size // LANES) * LANES
