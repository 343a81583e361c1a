"""The jitted retrieval encoders that trainer, index builder and `realm plan` compile."""

import functools
from collections.abc import Callable

import jax

from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig, Tower


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
def passage_encoder_program(config: DualEncoderConfig) -> Callable:
  """Returns the jitted `(params, Tokens [R, P]) -> [R, E]` of a tower's parameters."""
  tower = Tower(config)
  return jax.jit(lambda params, tokens: tower.apply({"params": params}, tokens, deterministic=True))


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
