"""The dual encoder: embeds queries and passages; inner products are retrieval scores.

A tower is BERT, its pooler, a dense projection and layer norm (Guu et al. 2020, section 3.2; the
layer norm and its dropout are those of the released ORQA code). Sentence encoders trained elsewhere
pool in other ways and have no projection.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax import choices, datatypes
from realm_jax.models import bert
from realm_jax.models.bucketed import in_buckets
from realm_jax.models.typed_module import TypedModule

Pooling = Literal["cls", "mean", "pooler"]
Output = Literal["pooled", "projection", "unit_length"]
Towers = Literal["separate", "shared"]
_SHORTEST = 1e-12  # keeps a vector of length zero at zero


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualEncoderConfig:
  """Settings of a dual encoder.

  Attributes:
    bert: Configuration of each tower's BERT.
    projection_size: Width E of the embeddings; BERT's width unless `output` is "projection".
    towers: "shared", one tower for queries and passages, or "separate".
    pooling: "pooler", BERT's pooler on [CLS] as published; "cls", the vector of [CLS] itself; or
      "mean", the mean over the tokens.
    output: "projection", dense and layer norm as published; "pooled", the pooled vector itself; or
      "unit_length", the pooled vector normalised to length 1.
    projection_dropout_rate: Dropout rate of the embedding.
    layer_norm_epsilon: Epsilon of the projection's layer norm; 1e-12 for the released weights.
    temperature: Divides the scores of retrieved passages; 1 as published. A higher temperature
      gives more passages a share of the prediction and the gradient.
    ignored_ids: Ids of special wordpieces that are not embedded. With that of [MASK], a masked
      query is embedded like a question, which has no masks.
  """

  bert: bert.BertConfig
  projection_size: int = 128
  towers: Towers = "shared"
  pooling: Pooling = "pooler"
  output: Output = "projection"
  projection_dropout_rate: float = 0.1
  layer_norm_epsilon: float = 1e-3
  temperature: float = 1.0
  ignored_ids: tuple[int, ...] = ()

  def __post_init__(self):
    choices.check_fields(self)
    if self.temperature <= 0:
      raise ValueError(f"temperature={self.temperature}; it must be above 0")
    if self.projection_size < 1:
      raise ValueError(f"projection_size={self.projection_size}; it must be at least 1")
    if not 0 <= self.projection_dropout_rate < 1:
      raise ValueError(
        f"projection_dropout_rate={self.projection_dropout_rate}; it must lie in [0, 1)"
      )
    if self.output != "projection" and self.projection_size != self.bert.hidden_size:
      raise ValueError(
        f"projection_size={self.projection_size} with output={self.output!r}; without a projection "
        f"the embedding is as wide as BERT: set it to {self.bert.hidden_size}"
      )


class Tower(TypedModule):
  """Encodes tokens as retrieval embeddings."""

  config: DualEncoderConfig

  def setup(self):
    config = self.config
    self.bert = bert.BertEncoder(config.bert)
    if config.pooling == "pooler":
      self.pooler = bert.BertPooler(config.bert)
    if config.output == "projection":
      # Always float32, because the softmax over passages compares small differences.
      self.projection = nn.Dense(
        config.projection_size,
        dtype=bert.wide_dtype(config.bert),
        kernel_init=nn.with_logical_partitioning(
          nn.initializers.glorot_uniform(), ("embed", "projection")
        ),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("projection",)),
      )
      self.projection_norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="projection")
    self.dropout = nn.Dropout(config.projection_dropout_rate)

  def __call__(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[F, E]` of `Tokens` `[F, L]`."""
    for ignored in self.config.ignored_ids:
      tokens = dataclasses.replace(tokens, mask=tokens.mask & (tokens.ids != ignored))
    embedding_FxE = self._pooled(tokens, deterministic=deterministic)
    if self.config.output == "projection":
      embedding_FxE = self.projection_norm(self.projection(embedding_FxE))
    elif self.config.output == "unit_length":
      # The mean over an empty slot is zero, where the norm has no gradient.
      square_Fx1 = jnp.sum(embedding_FxE**2, axis=1, keepdims=True)
      embedding_FxE = embedding_FxE * jax.lax.rsqrt(jnp.maximum(square_Fx1, _SHORTEST**2))
    return self.dropout(embedding_FxE, deterministic=deterministic)

  def _pooled(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    wide = bert.wide_dtype(self.config.bert)
    if self.config.pooling == "mean":
      hidden_FxLxD = self.bert(tokens, deterministic=deterministic)
      weights_FxLx1 = tokens.mask[..., None].astype(wide)
      total_FxD = jnp.sum(weights_FxLx1 * hidden_FxLxD, axis=1)
      return total_FxD / jnp.maximum(jnp.sum(weights_FxLx1, axis=1), 1.0)
    first_Fx1 = jnp.zeros((tokens.shape[0], 1), jnp.int32)
    hidden_Fx1xD = self.bert(tokens, deterministic=deterministic, positions_FxQ=first_Fx1)
    if self.config.pooling == "pooler":
      return self.pooler(hidden_Fx1xD).astype(wide)
    return hidden_Fx1xD[:, 0].astype(wide)


class DualEncoder(TypedModule):
  """Embeds queries and passages with one shared tower or with one tower each."""

  config: DualEncoderConfig

  def setup(self):
    if self.config.towers == "shared":
      self.tower = Tower(self.config)
    else:
      self.query_tower = Tower(self.config)
      self.passage_tower = Tower(self.config)

  def encode_query(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[F, E]` of the queries `Tokens` `[F, L]`."""
    tower = self.tower if self.config.towers == "shared" else self.query_tower
    return tower(tokens, deterministic=deterministic)

  def encode_passage(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[F, E]` of the passages `Tokens` `[F, P]`."""
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
    self,
    query: datatypes.Tokens,
    passage: datatypes.Tokens,
    *,
    deterministic: bool,
    buckets: datatypes.Buckets = (),
  ) -> jax.Array:
    """Returns float32 `scores_BxK` of queries `[B, L]` with their passages `[B, K, P]`.

    The arguments are those of `encode_batch`.
    """
    return self.scores(
      *self.encode_batch(query, passage, deterministic=deterministic, buckets=buckets)
    )

  def encode_batch(
    self,
    query: datatypes.Tokens,
    passage: datatypes.Tokens,
    *,
    deterministic: bool,
    buckets: datatypes.Buckets = (),
  ) -> tuple[jax.Array, jax.Array]:
    """Returns float32 `query_BxE`, `passage_BxKxE` of queries with their passages.

    Args:
      passage: Their passages; slot 0 holds the null passage, which is embedded only once.
      buckets: Buckets in which the other passages are embedded; see `in_buckets`.
    """
    num_queries, num_passages, passage_length = passage.shape
    embed = functools.partial(self.encode_passage, deterministic=deterministic)
    null_1xE = self.encode_null_passage(passage)
    others_FxP = passage[:, 1:].reshape(num_queries * (num_passages - 1), passage_length)
    others_FxE = in_buckets(embed, others_FxP, buckets=buckets)
    size = null_1xE.shape[-1]
    passage_BxKxE = jnp.concatenate(
      [
        jnp.broadcast_to(null_1xE, (num_queries, 1, size)),
        others_FxE.reshape(num_queries, num_passages - 1, size),
      ],
      axis=1,
    )
    return self.encode_query(query, deterministic=deterministic), passage_BxKxE

  def encode_null_passage(self, passage: datatypes.Tokens) -> jax.Array:
    """Returns the float32 embedding `[1, E]` of slot 0 of passages `[B, K, P]`."""
    # No dropout: all queries would share its noise.
    return self.encode_passage(passage[:1, 0, : datatypes.NULL_PASSAGE_LENGTH], deterministic=True)

  def scores(self, query_BxE: jax.Array, passage_BxKxE: jax.Array) -> jax.Array:
    """Returns `scores_BxK`, the inner products of embeddings divided by the temperature."""
    return jnp.einsum("BE,BKE->BK", query_BxE, passage_BxKxE) / self.config.temperature


def passage_tower_params(params: Mapping[str, Any]) -> Any:
  """Returns the parameters of the `Tower` that embeds passages.

  Args:
    params: Parameters of a `DualEncoder`, or of a model with one as `dual_encoder`.

  Raises:
    ValueError: If there is no tower.
  """
  params = params.get("dual_encoder", params)
  for name in ("passage_tower", "tower"):
    if name in params:
      return params[name]
  raise ValueError(
    f"no passage_tower or tower among {sorted(params)}; pass the params of a dual encoder"
  )
