"""The jitted retrieval encoders that trainer, index builder and `realm plan` compile."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Tokens
from realm_jax.models.encoder import EncoderConfig, Side

# The fastest of 576 to 9,216 with a BERT of width 384 on cores with 2 MiB of cache each.
_CACHED_WORDPIECES = 1152


@functools.cache
def query_encoder_program(
  config: EncoderConfig, *, sharding: jax.sharding.NamedSharding | None = None
) -> Callable:
  """Returns the jitted `(params, Tokens [B, L]) -> [B, E]` of an encoder's parameters."""
  module = config.make()

  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method="encode_query")

  if sharding is not None:
    encode = partitioning.on_mesh(sharding.mesh, encode)
  return jax.jit(encode, out_shardings=sharding)


@functools.cache
def passage_encoder_program(
  config: EncoderConfig, mesh: jax.sharding.Mesh, *, of: Side = "passage"
) -> Callable:
  """Returns the jitted `(params, Tokens [R, P]) -> [R, E]` on a mesh, of many passages or queries.

  The parameters need not include those of the other side.
  """
  module = config.make()

  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method=f"encode_{of}")

  if mesh.size == 1 and mesh.devices.item().platform == "cpu":
    # Small groups keep activations in the CPU cache, which is faster than all rows at once.
    return jax.jit(functools.partial(_a_few_at_a_time, encode))
  return jax.jit(partitioning.on_mesh(mesh, encode))


@functools.cache
def rescoring_program(config: EncoderConfig) -> Callable:
  """Returns the jitted `(params, Tokens [B, L], Tokens [B, R, P], scores_BxR) -> scores_BxR`."""
  module = config.make()

  def rescore(params, query, passage, scores_BxR):
    return module.apply({"params": params}, query, passage, scores_BxR, method="rescored")

  return jax.jit(rescore)


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
  config: EncoderConfig, place: Callable, *, sharding: jax.sharding.NamedSharding | None = None
) -> Callable:
  """Returns `(params, Tokens [B, L]) -> [B, E]`, which enqueues the work without waiting.

  Args:
    config: The encoder; its parameters are `params["dual_encoder"]`.
    place: Puts numpy queries on the devices.
    sharding: Sharding of the embeddings; None lets XLA choose.
  """
  encode = query_encoder_program(config, sharding=sharding)
  return lambda params, tokens: encode(params["dual_encoder"], place(tokens))
