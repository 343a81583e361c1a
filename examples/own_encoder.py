"""An encoder of your own: a text is the mean of vectors learned for its words.

A gin file that imports it passes it to a training in place of BERT's; `realm build_index` and the
jobs that answer need only the import, `--gin_file=FILE`, to open what was trained:

    from __gin__ import dynamic_registration
    from examples import own_encoder
    from realm_jax.training.recipes import plain_training
    from realm_jax.training.recipes import pretraining
    plain_training.ContrastiveTraining.dual_encoder = @own_encoder.BagConfig()
    pretraining.ModelConfig.dual_encoder = @own_encoder.BagConfig()
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

import realm_jax


@dataclasses.dataclass(frozen=True, kw_only=True)
class BagConfig(realm_jax.EncoderConfig):
  """Settings of a bag of words: the number of wordpieces, and the width of the embeddings."""

  vocab_size: int = 30522
  width: int = 128

  def make(self) -> "Bag":
    return Bag(self)


class Bag(realm_jax.Encoder):
  """Learns one vector per word for queries, and one for passages."""

  config: BagConfig

  def setup(self):
    self.query_words = nn.Embed(self.config.vocab_size, self.config.width)
    self.passage_words = nn.Embed(self.config.vocab_size, self.config.width)

  def encode_query(self, tokens, *, deterministic: bool) -> jax.Array:
    return _mean(self.query_words(tokens.ids), tokens.mask)

  def encode_passage(self, tokens, *, deterministic: bool) -> jax.Array:
    return _mean(self.passage_words(tokens.ids), tokens.mask)


def _mean(vectors_FxLxE: jax.Array, mask_FxL: jax.Array) -> jax.Array:
  weights_FxLx1 = mask_FxL[..., None].astype(vectors_FxLxE.dtype)
  return jnp.sum(weights_FxLx1 * vectors_FxLxE, axis=1) / jnp.maximum(weights_FxLx1.sum(axis=1), 1)
