"""The jitted encoders of retrieval, as trainer, index builder and `realm plan` compile them."""

import functools
from collections.abc import Callable

import jax

from realm_jax.models.dual_encoder import Tower
from realm_jax.models.realm import RealmPretrainingModel


def query_encoder_program(
  model: RealmPretrainingModel, *, sharding: jax.sharding.Sharding | None = None
) -> Callable:
  """Returns the jitted `(params, Tokens [B, L]) -> [B, E]` of both encoders' parameters."""

  @functools.partial(jax.jit, out_shardings=sharding)
  def encode(params, tokens):
    return model.apply(
      {"params": params},
      tokens,
      method=lambda module, tokens: module.dual_encoder.encode_query(tokens, deterministic=True),
    )

  return encode


def passage_encoder_program(tower: Tower) -> Callable:
  """Returns the jitted `(params, Tokens [R, P]) -> [R, E]` of a tower's parameters."""
  return jax.jit(lambda params, tokens: tower.apply({"params": params}, tokens, deterministic=True))
