"""The dual encoder: queries and passages as vectors whose inner product is the retrieval score.

A tower is BERT, its pooler, a dense projection and layer norm (Guu et al. 2020, section 3.2; the
layer norm and its dropout are those of the released ORQA code).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax import datatypes
from realm_jax.models import bert

_POOLINGS = ("mean", "pooler")
_TOWERS = ("separate", "shared")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualEncoderConfig:
  """Settings of a dual encoder.

  Attributes:
    bert: of each tower.
    projection_size: width E of the embeddings.
    towers: "shared", one tower for queries and passages, or "separate".
    pooling: "pooler", BERT's pooler on [CLS] as published, or "mean", the mean over the tokens.
    projection_dropout_rate: of the finished embedding.
    layer_norm_epsilon: of the projection; 1e-12 suits the released weights.
    temperature: scores of retrieved passages are divided by it, 1 as published. Higher, more of the
      passages take part in what is read and learned; the order of passages is the same.
  """

  bert: bert.BertConfig
  projection_size: int = 128
  towers: str = "shared"
  pooling: str = "pooler"
  projection_dropout_rate: float = 0.1
  layer_norm_epsilon: float = 1e-3
  temperature: float = 1.0

  def __post_init__(self):
    if self.temperature <= 0:
      raise ValueError(f"temperature={self.temperature}; it must be above 0")
    if self.projection_size < 1:
      raise ValueError(f"projection_size={self.projection_size}; it must be at least 1")
    if not 0 <= self.projection_dropout_rate < 1:
      raise ValueError(
        f"projection_dropout_rate={self.projection_dropout_rate}; it must lie in [0, 1)"
      )
    if self.towers not in _TOWERS:
      raise ValueError(f"towers={self.towers!r}; choose one of {_TOWERS}")
    if self.pooling not in _POOLINGS:
      raise ValueError(f"pooling={self.pooling!r}; choose one of {_POOLINGS}")


class Tower(nn.Module):
  """Turns tokens into retrieval embeddings."""

  config: DualEncoderConfig

  def setup(self):
    config = self.config
    self.bert = bert.BertEncoder(config.bert)
    if config.pooling == "pooler":
      self.pooler = bert.BertPooler(config.bert)
    # float32 whatever the activations are: the softmax over passages compares small differences.
    self.projection = nn.Dense(
      config.projection_size,
      dtype=jnp.float32,
      kernel_init=nn.with_logical_partitioning(
        nn.initializers.glorot_uniform(), ("embed", "projection")
      ),
      bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("projection",)),
    )
    self.projection_norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="projection")
    self.dropout = nn.Dropout(config.projection_dropout_rate)

  def __call__(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[N, E]` of `Tokens` `[N, L]`."""
    if self.config.pooling == "pooler":
      first_Nx1 = jnp.zeros((tokens.shape[0], 1), jnp.int32)
      hidden = self.bert(tokens, deterministic=deterministic, positions_NxQ=first_Nx1)
      pooled_NxD = self.pooler(hidden)
    else:
      hidden = self.bert(tokens, deterministic=deterministic)
      weights_NxLx1 = tokens.mask[..., None].astype(jnp.float32)
      total_NxD = jnp.sum(weights_NxLx1 * hidden, axis=1)
      pooled_NxD = total_NxD / jnp.maximum(jnp.sum(weights_NxLx1, axis=1), 1.0)
    embedding_NxE = self.projection_norm(self.projection(pooled_NxD))
    return self.dropout(embedding_NxE, deterministic=deterministic)


class DualEncoder(nn.Module):
  """Embeds queries and passages with one shared tower or with one tower each."""

  config: DualEncoderConfig

  def setup(self):
    if self.config.towers == "shared":
      self.tower = Tower(self.config)
    else:
      self.query_tower = Tower(self.config)
      self.passage_tower = Tower(self.config)

  def encode_query(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[N, E]` of the queries `Tokens` `[N, L]`."""
    tower = self.tower if self.config.towers == "shared" else self.query_tower
    return tower(tokens, deterministic=deterministic)

  def encode_passage(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[N, E]` of the passages `Tokens` `[N, P]`."""
    tower = self.tower if self.config.towers == "shared" else self.passage_tower
    return tower(tokens, deterministic=deterministic)

  def encode_pairs(
    self, query: datatypes.Tokens, passage: datatypes.Tokens, *, deterministic: bool
  ) -> tuple[jax.Array, jax.Array]:
    """Returns float32 `query_BxE`, `passage_BxE` of queries `[B, L]` and passages `[B, P]`."""
    return (
      self.encode_query(query, deterministic=deterministic),
      self.encode_passage(passage, deterministic=deterministic),
    )

  def __call__(
    self, query: datatypes.Tokens, passage: datatypes.Tokens, *, deterministic: bool
  ) -> jax.Array:
    """Returns float32 `scores_BxK` of queries `[B, L]` with their passages `[B, K, P]`."""
    num_queries, num_passages, passage_length = passage.shape
    query_BxE, passage_NxE = self.encode_pairs(
      query,
      passage.reshape(num_queries * num_passages, passage_length),
      deterministic=deterministic,
    )
    passage_BxKxE = passage_NxE.reshape(num_queries, num_passages, -1)
    return jnp.einsum("BE,BKE->BK", query_BxE, passage_BxKxE) / self.config.temperature


def passage_tower_params(params: Mapping[str, Any]) -> Any:
  """Returns the parameters with which `Tower` embeds passages.

  Args:
    params: of a `DualEncoder`, or of a model that holds one as `dual_encoder`.

  Raises:
    ValueError: if no tower is found.
  """
  params = params.get("dual_encoder", params)
  for name in ("passage_tower", "tower"):
    if name in params:
      return params[name]
  raise ValueError(
    f"no passage_tower or tower among {sorted(params)}; pass the params of a dual encoder"
  )
