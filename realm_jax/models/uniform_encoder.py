"""The encoder of a model that reads and does not retrieve: all passages have the same score."""

import dataclasses

import jax
import jax.numpy as jnp

from realm_jax.devices.datatypes import Tokens
from realm_jax.models.encoder import Encoder, EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformEncoderConfig(EncoderConfig):
  """Settings of an encoder without parameters."""

  def make(self) -> "UniformEncoder":
    return UniformEncoder(self)


class UniformEncoder(Encoder):
  """Embeds every text as zero."""

  def encode_query(self, tokens: Tokens, *, deterministic: bool = True) -> jax.Array:
    del deterministic
    return jnp.zeros((tokens.shape[0], 1))

  def encode_passage(self, tokens: Tokens, *, deterministic: bool = True) -> jax.Array:
    return self.encode_query(tokens, deterministic=deterministic)
