"""The dual encoder: embeds queries and passages; inner products are retrieval scores.

A tower is BERT, its pooler, a dense projection and layer norm (Guu et al. 2020, section 3.2; the
layer norm and its dropout are those of the released ORQA code). Sentence encoders trained elsewhere
pool in other ways and have no projection.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.foundations import choices
from realm_jax.models import attention_kernels, bert, dropout
from realm_jax.models.bert import TypedModule
from realm_jax.models.encoder import Encoder, EncoderConfig
from realm_jax.text.wordpieces import WordPieces

Pooling = Literal["cls", "mean", "pooler"]
Output = Literal["pooled", "projection", "unit_length"]
Towers = Literal["separate", "shared"]
_SHORTEST = 1e-12  # keeps a vector of length zero at zero


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualEncoderConfig(EncoderConfig):
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
    ignored_ids: Ids of special wordpieces that are not embedded. With that of [MASK], a masked
      query is embedded like a question, which has no masks.
    query_prompt: Ids of wordpieces that follow [CLS] in every query, such as those of "query: ", as
      the encoder was trained.
    passage_prompt: The same for passages.
  """

  bert: bert.BertConfig
  projection_size: choices.Count = 128
  towers: Towers = "shared"
  pooling: Annotated[Pooling, choices.IMPORTED] = "pooler"
  output: Annotated[Output, choices.IMPORTED] = "projection"
  projection_dropout_rate: choices.Rate = 0.1
  layer_norm_epsilon: Annotated[choices.PositiveOrZero, choices.IMPORTED] = 1e-3
  ignored_ids: Annotated[tuple[choices.CountOrZero, ...], choices.IMPORTED] = ()
  query_prompt: Annotated[tuple[choices.CountOrZero, ...], choices.IMPORTED] = ()
  passage_prompt: Annotated[tuple[choices.CountOrZero, ...], choices.IMPORTED] = ()

  def __post_init__(self):
    super().__post_init__()
    if self.bert.copies:
      raise ValueError("copies=True in a dual encoder's BERT; only a reader copies")
    if self.output != "projection" and self.projection_size != self.bert.hidden_size:
      raise ValueError(
        f"projection_size={self.projection_size} with output={self.output!r}; without a projection "
        f"the embedding is as wide as BERT: set it to {self.bert.hidden_size}"
      )

  def make(self) -> "DualEncoder":
    return DualEncoder(self)

  @property
  def embedding_size(self) -> int:
    return self.projection_size

  @property
  def unit_length(self) -> bool:
    return self.output == "unit_length"

  @property
  def reading_bert(self) -> tuple[str, bert.BertConfig]:
    return ("tower/bert" if self.towers == "shared" else "query_tower/bert"), self.bert

  def check(self, vocabulary: WordPieces, *, name: str = "dual_encoder", **lengths: int) -> None:
    for kind in list(lengths):
      if prompt := self.query_prompt if kind == "query_length" else self.passage_prompt:
        lengths[f"with a prompt, {kind}"] = lengths.pop(kind) + len(prompt)
    super().check(vocabulary, name=name, **lengths)
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id}
    if words := set(self.ignored_ids) - special:
      raise ValueError(
        f"ignored_ids={self.ignored_ids}: {sorted(words)} are not special wordpieces of the "
        f"vocabulary, whose [MASK] is {vocabulary.mask_id}"
      )

  def separated(self) -> tuple[EncoderConfig, Mapping[str, str]]:
    if self.towers == "separate":
      return super().separated()
    copies = {"query_tower": "tower", "passage_tower": "tower"}
    return dataclasses.replace(self, towers="separate"), copies


class Tower(TypedModule):
  """Encodes tokens as retrieval embeddings."""

  config: DualEncoderConfig

  def setup(self):
    config, of_bert = self.config, self.config.bert
    if config.ignored_ids:
      attention = attention_kernels.with_gaps(of_bert.attention)
      of_bert = dataclasses.replace(of_bert, attention=attention)
    self.bert = bert.BertEncoder(of_bert)
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
    rate = self.config.projection_dropout_rate
    if deterministic or not rate:
      return embedding_FxE
    return dropout.dropped(embedding_FxE, dropout.of_use(bert.noise(self, tokens), self.path), rate)

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


class DualEncoder(Encoder):
  """Embeds queries and passages with one shared tower or with one tower each."""

  config: DualEncoderConfig

  def setup(self):
    if self.config.towers == "shared":
      self.tower = Tower(self.config)
    else:
      self.query_tower = Tower(self.config)
      self.passage_tower = Tower(self.config)

  def encode_query(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    tower = self.tower if self.config.towers == "shared" else self.query_tower
    return tower(_prompted(tokens, self.config.query_prompt), deterministic=deterministic)

  def encode_passage(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    tower = self.tower if self.config.towers == "shared" else self.passage_tower
    return tower(_prompted(tokens, self.config.passage_prompt), deterministic=deterministic)


def _prompted(tokens: datatypes.Tokens, prompt: Sequence[int]) -> datatypes.Tokens:
  """Returns the tokens with a prompt after [CLS]; padding stays padding."""
  if not prompt:
    return tokens

  def insert(values_FxL: jax.Array, inserted: jax.Array) -> jax.Array:
    rows_FxP = jnp.broadcast_to(inserted, (values_FxL.shape[0], len(prompt)))
    first_FxC, rest_FxC = values_FxL[:, :1], values_FxL[:, 1:]
    return jnp.concatenate([first_FxC, rows_FxP.astype(values_FxL.dtype), rest_FxC], axis=1)

  filled_Fx1 = tokens.mask[:, :1]
  return datatypes.Tokens(
    ids=insert(tokens.ids, jnp.where(filled_Fx1, jnp.array(prompt), 0)),
    mask=insert(tokens.mask, filled_Fx1),
    segments=insert(tokens.segments, jnp.zeros((1, 1))),
    noise=tokens.noise,
  )
