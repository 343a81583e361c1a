"""Arithmetic and memory of BERT encoders and of a REALM training step, in closed form."""

import dataclasses

LANES = 128  # an array's last dimension takes a multiple of this in an accelerator's memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoder:
  """Sizes of a BERT.

  Attributes:
    layers: transformer layers.
    width: D.
    heads: H.
    mlp: width of the feed-forward layer.
    vocab: V.
    bytes_per_activation: 2 for bfloat16, 4 for float32.
    remat: whether the backward pass computes each layer again.
  """

  layers: int
  width: int
  heads: int
  mlp: int
  vocab: int
  bytes_per_activation: int
  remat: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
  """Sequences that one encoder reads in a step.

  Attributes:
    encoder: which.
    sequences: number of sequences.
    length: wordpieces of each, padding included.
    positions: of a sequence whose last-layer vectors are wanted.
    words: positions of a sequence at which all words are predicted.
  """

  encoder: Encoder
  sequences: int
  length: int
  positions: int
  words: int = 0


def forward_flops(work: Pass) -> float:
  """Returns multiplications and additions of the matrix products, forward."""
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
  """Returns the operations of a training step: forward, twice that backward, remat's repetition."""
  return sum((4 if work.encoder.remat else 3) * forward_flops(work) for work in passes)


def model_flops(passes: list[Pass]) -> float:
  """Returns the operations that a training step needs; a repetition is no progress."""
  return sum(3 * forward_flops(work) for work in passes)


def activation_bytes(passes: list[Pass]) -> float:
  """Returns what a device keeps from the forward pass for the backward pass.

  Args:
    passes: with the sequences of one device.
  """
  return sum(_kept_bytes(work) for work in passes)


def _kept_bytes(work: Pass) -> float:
  e = work.encoder
  tokens = work.sequences * work.length
  a = e.bytes_per_activation
  layer_input = tokens * e.width * a
  # Heads narrower than a lane row are padded up to it: queries, keys, values and their mixture.
  per_head = _padded(e.width // e.heads) * e.heads
  attention = tokens * (4 * per_head * a + e.heads * _padded(work.length) * a)
  # Two residual branches before and after their norm, and the feed-forward layer before and after
  # its nonlinearity.
  rest = tokens * (4 * e.width + 2 * e.mlp) * a
  inner = layer_input + attention + rest
  words = work.sequences * work.words * _padded(e.vocab) * 4
  if e.remat:
    return e.layers * layer_input + inner + 2 * words
  return (e.layers - 1) * inner + layer_input + attention + 2 * words


def _padded(size: int) -> int:
  return -(-size // LANES) * LANES
