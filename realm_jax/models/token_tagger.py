"""A BERT that gives each wordpiece a tag (Devlin et al. 2018, section 5.3)."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax import datatypes
from realm_jax.models import bert
from realm_jax.models.typed_module import TypedModule


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTaggerConfig:
  """Size of a tagger.

  Attributes:
    bert: its encoder.
    num_tags: C.
    dropout_rate: of the encoder's vectors.
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
  """Turns tokens into logits of tags."""

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
    """Returns float32 logits `[N, L, C]` of `Tokens` `[N, L]`."""
    hidden_NxLxD = self.bert(tokens, deterministic=deterministic)
    hidden_NxLxD = self.dropout(hidden_NxLxD, deterministic=deterministic)
    return self.classifier(hidden_NxLxD.astype(jnp.float32))
