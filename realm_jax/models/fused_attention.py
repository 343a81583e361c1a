"""Self-attention as one TPU kernel: nothing of the logits' size is written to the device's memory.

Each program of the kernel computes a group of heads of one sequence; their logits fit into the
vector memory as a whole; the backward pass computes them again. Queries, keys and values are packed
group by group, as one product of the hidden vectors leaves them, and heads lie side by side: a
product over all lanes of a group is that of one head if a factor is zero in the lanes of the
others. So nothing is transposed, padded or copied in memory.

Dropout of the probabilities is a hash of the position and of two words per sequence and head, so
its masks are the same forwards, backwards, on every mesh and at every padded length.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from realm_jax.devices import partitioning

LONGEST = 512  # its logits fit several times into the vector memory of every TPU
_LANES = 128
_WIDE_FACTORS = ("TPU v2", "TPU v3")  # whose kernels multiply float32 only, rounding to bfloat16
_LOWEST = float(np.finfo(np.float32).min)


def packed(query_DxHxG: jax.Array, key_DxHxG: jax.Array, value_DxHxG: jax.Array) -> jax.Array:
  """Returns projections `[D, 3D]` to queries, keys and values, as `fused_attention` takes them."""
  num_rows, num_heads, head_size = query_DxHxG.shape
  groups = num_heads // _heads_of_group(num_heads, head_size)
  parts = (part.reshape(num_rows, groups, -1) for part in (query_DxHxG, key_DxHxG, value_DxHxG))
  return jnp.stack(list(parts), axis=2).reshape(num_rows, -1)


def _fused_attention(
  packed_FxLx3D: jax.Array,
  bias_1x3D: jax.Array,
  mask_FxL: jax.Array,
  words_FxHx2: jax.Array,
  keep: float,
  dtype: str,
) -> jax.Array:
  """Returns the context `[F, L, H * G]`; 0 where all positions are masked.

  TPUs run the kernel, other devices emulate it slowly. On a mesh, each device computes the
  sequences and heads that it holds.

  Args:
    packed_FxLx3D: Queries, keys and values without bias, from projections that are `packed`; L is
      at most `LONGEST`.
    bias_1x3D: Packed likewise. The kernel also sums its gradient.
    mask_FxL: False for padding.
    words_FxHx2: Random uint32 that determine the dropout.
    keep: Probability of keeping an attention probability; 1 disables dropout.
    dtype: Dtype of the biased queries, keys and values, and of the context.
  """
  return _forward(packed_FxLx3D, bias_1x3D, mask_FxL, words_FxHx2, keep, dtype)[0]


def _forward(packed_FxLx3D, bias_1x3D, mask_FxL, words_FxHx2, keep, dtype):
  packed_FxLx3D = (packed_FxLx3D + bias_1x3D[None]).astype(dtype)
  (context_FxLxD,) = _run(_forward_kernel, (packed_FxLx3D,), mask_FxL, words_FxHx2, keep=keep)
  return context_FxLxD, (packed_FxLx3D, mask_FxL, words_FxHx2)


def _gradients(keep, dtype, kept, slope_FxLxD):
  del dtype
  packed_FxLx3D, mask_FxL, words_FxHx2 = kept
  rows = packed_FxLx3D, slope_FxLxD
  of_packed_FxLx3D, of_bias_Fx1x3D = _run(_backward_kernel, rows, mask_FxL, words_FxHx2, keep=keep)
  return of_packed_FxLx3D.astype(jnp.float32), of_bias_Fx1x3D.sum(axis=0), None, None


fused_attention = jax.custom_vjp(_fused_attention, nondiff_argnums=(4, 5))
fused_attention.defvjp(_forward, _gradients)


def kept(words_FxHx2: jax.Array, *, length: int, keep: float) -> jax.Array:
  """Returns which probabilities `[F, H, L, L]` the kernel's dropout keeps."""
  first, second = (words_FxHx2[..., i, None, None] for i in range(2))
  return _is_kept(first, second, shape=(1, 1, length, length), keep=keep)


def _is_kept(first, second, *, shape: tuple[int, ...], keep: float) -> jax.Array:
  row, column = (jax.lax.broadcasted_iota(jnp.uint32, shape, len(shape) - i) for i in (2, 1))
  x = (row * jnp.uint32(LONGEST) + column) ^ first
  x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * jnp.uint32(0xD35A2D97)
  bits = (x ^ (x >> 15) ^ second) >> 8
  return bits.astype(jnp.int32) < round(keep * 2**24)


def _heads_of_group(num_heads: int, head_size: int) -> int:
  """Returns the fewest heads that fill rows of lanes, or all those of a device."""
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.empty:
    num_heads //= mesh.shape.get(_spec(mesh, (1, num_heads))[1], 1)
  heads = _LANES // math.gcd(head_size, _LANES)
  return heads if num_heads % heads == 0 else num_heads


def _spec(mesh, shape: tuple[int, int]) -> PartitionSpec:
  """Returns how sequences and heads are divided among devices."""
  return partitioning.divided(mesh, partitioning.sharding(mesh, "batch", "heads").spec, shape)


def _run(kernel, rows, mask_FxL, words_FxHx2, *, keep: float) -> list[jax.Array]:
  """Runs a kernel on each device's part of the arrays, because XLA does not partition kernels."""
  mesh, num_heads = jax.sharding.get_abstract_mesh(), words_FxHx2.shape[1]
  head_size = rows[0].shape[2] // (3 * num_heads)
  device, dtype = mesh.abstract_device, rows[0].dtype
  if device is not None and device.device_kind in _WIDE_FACTORS:
    dtype = jnp.float32
  heads = _Heads(_heads_of_group(num_heads, head_size), head_size, dtype, keep)
  call = functools.partial(_call, functools.partial(kernel, heads), heads.count)
  if mesh.empty:
    return call(rows, mask_FxL, words_FxHx2)
  batch, axis = _spec(mesh, words_FxHx2.shape[:2])
  of_rows, of_mask = PartitionSpec(batch, None, axis), PartitionSpec(batch, None)
  by_part = jax.shard_map(
    call,
    in_specs=(of_rows, of_mask, PartitionSpec(batch, axis, None)),
    out_specs=of_rows,
    check_vma=False,
  )
  return by_part(rows, mask_FxL, words_FxHx2)


def _call(kernel, heads_of_group, rows, mask_FxL, words_FxHx2) -> list[jax.Array]:
  """Runs a kernel for every sequence and group of heads on one device."""
  num_sequences, length, width = rows[0].shape
  num_heads = words_FxHx2.shape[1]
  groups = num_heads // heads_of_group

  def block(array) -> pl.BlockSpec:
    return pl.BlockSpec((None, array.shape[1], array.shape[2] // groups), lambda f, g: (f, 0, g))

  def output(length: int, width: int, dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((num_sequences, length, width), dtype)

  inputs = *rows, mask_FxL.astype(jnp.int32)[:, None], words_FxHx2.reshape(num_sequences, 1, -1)
  if len(rows) == 1:
    products, outputs = 2, [output(length, width // 3, rows[0].dtype)]  # logits, context
  else:  # the logits again, four gradients
    products, outputs = 5, [output(length, width, rows[0].dtype), output(1, width, jnp.float32)]

  def program(*inputs, interpret: bool):
    return pl.pallas_call(
      kernel,
      out_shape=outputs,
      grid=(num_sequences, groups),
      in_specs=[
        *map(block, rows),
        pl.BlockSpec((None, 1, length), lambda f, g: (f, 0, 0)),
        pl.BlockSpec((None, 1, 2 * num_heads), lambda f, g: (f, 0, 0), memory_space=pltpu.SMEM),
      ],
      out_specs=[*map(block, outputs)],
      # What is read and written, as of any operation; and no more operations than are needed.
      cost_estimate=pl.CostEstimate(
        flops=2 * products * num_sequences * length**2 * width // 3,
        transcendentals=num_sequences * num_heads * length**2,
        bytes_accessed=sum(array.size * array.dtype.itemsize for array in (*inputs, *outputs)),
      ),
      interpret=interpret,
    )(*inputs)

  return jax.lax.platform_dependent(
    *inputs,
    tpu=functools.partial(program, interpret=False),
    default=functools.partial(program, interpret=True),
  )


@dataclasses.dataclass(frozen=True)
class _Heads:
  """The heads side by side in a program's arrays.

  Attributes:
    count: Number of heads.
    size: Lanes of a head.
    dtype: Dtype of the factors of products.
    keep: See `fused_attention`.
  """

  count: int
  size: int
  dtype: Any
  keep: float

  def own(self, rows_LxD: jax.Array, index: int) -> jax.Array:
    """Returns an array with zeros in the lanes of all other heads."""
    lane = jax.lax.broadcasted_iota(jnp.int32, (1, self.count * self.size), 1)
    is_own_1xD = (lane >= index * self.size) & (lane < (index + 1) * self.size)
    # In float32, as older TPUs select no narrower numbers.
    return jnp.where(is_own_1xD, rows_LxD.astype(jnp.float32), 0.0).astype(self.dtype)

  def weights(self, packed_ref, mask_ref, index: int):
    """Returns a head's query and key, its attention weights and what to divide them by."""
    query_LxD, key_LxD = (self.own(part, index) for part in self.parts(packed_ref)[:2])
    logits_LxL = _dot(query_LxD, key_LxD, (1, 1)) * self.size**-0.5
    logits_LxL = jnp.where(mask_ref[...] > 0, logits_LxL, _LOWEST)
    highest_Lx1 = jnp.max(logits_LxL, axis=1, keepdims=True)
    weights_LxL = jnp.exp(logits_LxL - highest_Lx1)
    total_Lx1 = jnp.sum(weights_LxL, axis=1, keepdims=True)
    # Infinite if all positions are masked.
    total_Lx1 = jnp.where(highest_Lx1 > _LOWEST, total_Lx1, jnp.inf)
    return query_LxD, key_LxD, weights_LxL, total_Lx1

  def parts(self, ref) -> list[jax.Array]:
    """Returns the queries, keys and values of all heads, or where their gradients are written."""
    width = self.count * self.size
    return [ref[:, i * width : (i + 1) * width] for i in range(3)]

  def dropped(self, values_LxL: jax.Array, words_ref, index: int) -> jax.Array:
    """Applies the dropout of a head."""
    if self.keep == 1:
      return values_LxL
    head = pl.program_id(1) * self.count + index
    words = (words_ref[0, 2 * head + i] for i in range(2))
    is_kept_LxL = _is_kept(*words, shape=values_LxL.shape, keep=self.keep)
    return jnp.where(is_kept_LxL, values_LxL / self.keep, 0.0)


def _forward_kernel(heads: _Heads, packed_ref, mask_ref, words_ref, context_ref):
  context_LxD = jnp.zeros(context_ref.shape, jnp.float32)
  for index in range(heads.count):
    value_LxD = heads.own(heads.parts(packed_ref)[2], index)
    _, _, weights_LxL, total_Lx1 = heads.weights(packed_ref, mask_ref, index)
    weights_LxL = heads.dropped(weights_LxL, words_ref, index).astype(heads.dtype)
    context_LxD += _dot(weights_LxL, value_LxD, (1, 0)) / total_Lx1
  context_ref[...] = context_LxD.astype(context_ref.dtype)


def _backward_kernel(
  heads: _Heads, packed_ref, slope_ref, mask_ref, words_ref, gradient_ref, bias_ref
):
  gradients = [jnp.zeros(slope_ref.shape, jnp.float32)] * 3
  value_LxD = heads.parts(packed_ref)[2].astype(heads.dtype)
  for index in range(heads.count):
    slope_LxD = heads.own(slope_ref[...], index)
    query_LxD, key_LxD, weights_LxL, total_Lx1 = heads.weights(packed_ref, mask_ref, index)
    probs_LxL = weights_LxL / total_Lx1
    of_probs_LxL = heads.dropped(_dot(slope_LxD, value_LxD, (1, 1)), words_ref, index)
    mean_Lx1 = jnp.sum(of_probs_LxL * probs_LxL, axis=1, keepdims=True)
    of_logits_LxL = probs_LxL * (of_probs_LxL - mean_Lx1) * heads.size**-0.5
    of_logits_LxL = of_logits_LxL.astype(heads.dtype)
    probs_LxL = heads.dropped(probs_LxL, words_ref, index).astype(heads.dtype)
    of_head = (
      _dot(of_logits_LxL, key_LxD, (1, 0)),
      _dot(of_logits_LxL, query_LxD, (0, 0)),
      _dot(probs_LxL, slope_LxD, (0, 0)),
    )
    gradients = [total + part for total, part in zip(gradients, of_head, strict=True)]
  gradient_Lx3D = jnp.concatenate(gradients, axis=1)
  gradient_ref[...] = gradient_Lx3D.astype(gradient_ref.dtype)
  bias_ref[...] = jnp.sum(gradient_Lx3D, axis=0, keepdims=True)


def _dot(first: jax.Array, second: jax.Array, axes: tuple[int, int]) -> jax.Array:
  return jax.lax.dot_general(
    first, second, (((axes[0],), (axes[1],)), ((), ())), preferred_element_type=jnp.float32
  )
