"""The jitted retrieval encoders that trainer, index builder and `realm plan` compile."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from realm_jax.datatypes import Tokens
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig, Tower

# The fastest of 576 to 9,216 with a BERT of width 384 on cores with 2 MiB of cache each.
_CACHED_WORDPIECES = 1152


@functools.cache
def query_encoder_program(
  config: DualEncoderConfig, *, sharding: jax.sharding.Sharding | None = None
) -> Callable:
  """Returns the jitted `(params, Tokens [B, L]) -> [B, E]` of a dual encoder's parameters."""
  module = DualEncoder(config)

  @functools.partial(jax.jit, out_shardings=sharding)
  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method="encode_query")

  return encode


@functools.cache
def passage_encoder_program(config: DualEncoderConfig, *, one_cpu: bool = False) -> Callable:
  """Returns the jitted `(params, Tokens [R, P]) -> [R, E]` of a tower's parameters.

  Args:
    config: The dual encoder.
    one_cpu: Whether it runs on a single CPU device, where a few rows at a time, whose activations
      stay in the processor's caches, are encoded faster than all at once.
  """
  tower = Tower(config)

  def encode(params, tokens):
    return tower.apply({"params": params}, tokens, deterministic=True)

  return jax.jit(functools.partial(_a_few_at_a_time, encode) if one_cpu else encode)


def is_one_cpu(mesh: jax.sharding.Mesh) -> bool:
  """Returns whether a mesh is a single CPU device."""
  return mesh.size == 1 and mesh.devices.item().platform == "cpu"


def _a_few_at_a_time(encode: Callable, params, tokens: Tokens) -> jax.Array:
  num_rows, length = tokens.shape
  num_groups = -(-num_rows // max(1, _CACHED_WORDPIECES // length))
  rows = -(-num_rows // num_groups)

  def grouped(leaf):
    padded = jnp.pad(leaf, ((0, num_groups * rows - num_rows), (0, 0)))
    return padded.reshape(num_groups, rows, length)

  encoded_GxRxE = jax.lax.map(functools.partial(encode, params), jax.tree.map(grouped, tokens))
  return encoded_GxRxE.reshape(num_groups * rows, -1)[:num_rows]


def query_encoder(
  config: DualEncoderConfig, place: Callable, *, sharding: jax.sharding.Sharding | None = None
) -> Callable:
  """Returns `(params, Tokens [B, L]) -> [B, E]`, which enqueues the work without waiting.

  Args:
    config: The dual encoder; its parameters are `params["dual_encoder"]`.
    place: Puts numpy queries on the devices.
    sharding: Sharding of the embeddings; None lets XLA choose.
  """
  encode = query_encoder_program(config, sharding=sharding)
  return lambda params, tokens: encode(params["dual_encoder"], place(tokens))
