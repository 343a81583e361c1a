"""A BERT that tags each wordpiece (Devlin et al. 2018, section 5.3)."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.models import bert
from realm_jax.models.typed_module import TypedModule


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTaggerConfig:
  """Size of a tagger.

  Attributes:
    bert: Configuration of the encoder.
    num_tags: Number of tags, Y.
    dropout_rate: Dropout rate of the encoder's vectors.
  """

  bert: bert.BertConfig
  num_tags: int
  dropout_rate: float = 0.1

  def __post_init__(self):
    if self.num_tags < 1:
      raise ValueError(f"num_tags={self.num_tags}; it must be at least 1")
    if not 0 <= self.dropout_rate < 1:
      raise ValueError(f"dropout_rate={self.dropout_rate}; it must lie in [0, 1)")


class TokenTagger(TypedModule):
  """Computes logits of tags from tokens."""

  config: TokenTaggerConfig

  def setup(self):
    config = self.config
    self.bert = bert.BertEncoder(config.bert)
    self.dropout = nn.Dropout(config.dropout_rate)
    self.classifier = nn.Dense(
      config.num_tags,
      dtype=jnp.float32,
      kernel_init=nn.with_logical_partitioning(bert.kernel_init(config.bert), ("embed", None)),
      bias_init=nn.with_logical_partitioning(nn.initializers.zeros, (None,)),
    )

  def __call__(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 logits `[F, L, Y]` of `Tokens` `[F, L]`."""
    hidden_FxLxD = self.bert(tokens, deterministic=deterministic)
    hidden_FxLxD = self.dropout(hidden_FxLxD, deterministic=deterministic)
    return self.classifier(hidden_FxLxD.astype(jnp.float32))
