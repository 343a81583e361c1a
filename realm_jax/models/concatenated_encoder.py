"""Two encoders as one: vectors are concatenated, so scores are added."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax.datatypes import Tokens
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import Encoder, EncoderConfig
from realm_jax.models.lexical_encoder import LexicalEncoderConfig
from realm_jax.wordpieces import WordPieces

_HALVES = ("semantic", "lexical")
_WEIGHT = "semantic_log_weight"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConcatenatedEncoderConfig(EncoderConfig):
  """Settings of a semantic and a lexical encoder of the same texts.

  Attributes:
    semantic_weight: Initial weight of the semantic scores; it is learned.
  """

  semantic: EncoderConfig = DualEncoderConfig(bert=BertConfig())
  lexical: LexicalEncoderConfig = LexicalEncoderConfig()
  semantic_weight: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    if self.semantic_weight <= 0:
      raise ValueError(f"semantic_weight={self.semantic_weight}; it must be above 0")

  def make(self) -> "ConcatenatedEncoder":
    return ConcatenatedEncoder(self)

  @property
  def embedding_size(self) -> int:
    return self.semantic.embedding_size + self.lexical.embedding_size

  @property
  def num_candidates(self) -> int:
    return self.lexical.num_candidates

  def rescoring_params(self, params: Mapping) -> Mapping:
    return {name: params[name] for name in ("lexical", _WEIGHT)}

  @property
  def reading_bert(self) -> tuple[str, BertConfig] | None:
    found = self.semantic.reading_bert
    return None if found is None else (f"semantic/{found[0]}", found[1])

  def check(self, vocabulary: WordPieces, *, name: str = "dual_encoder", **lengths: int) -> None:
    for half in _HALVES:
      getattr(self, half).check(vocabulary, name=f"{name}.{half}", **lengths)

  def from_corpus(self, store, vocabulary: WordPieces) -> Mapping[str, Any]:
    return {half: getattr(self, half).from_corpus(store, vocabulary) for half in _HALVES}


class ConcatenatedEncoder(Encoder):
  """Embeds queries and passages twice."""

  config: ConcatenatedEncoderConfig

  def setup(self):
    self.semantic = self.config.semantic.make()
    self.lexical = self.config.lexical.make()
    weight = nn.initializers.constant(jnp.log(self.config.semantic_weight))
    self.log_weight = self.param(_WEIGHT, weight, ())

  def encode_query(self, tokens: Tokens, *, deterministic: bool) -> jax.Array:
    semantic_FxE = self.semantic.encode_query(tokens, deterministic=deterministic)
    lexical_FxE = self.lexical.encode_query(tokens, deterministic=deterministic)
    return jnp.concatenate([jnp.exp(self.log_weight) * semantic_FxE, lexical_FxE], axis=1)

  def encode_passage(self, tokens: Tokens, *, deterministic: bool) -> jax.Array:
    halves = (self.semantic, self.lexical)
    embedded = [half.encode_passage(tokens, deterministic=deterministic) for half in halves]
    return jnp.concatenate(embedded, axis=1)

  def rescored(self, query: Tokens, passage: Tokens, scores_BxR: jax.Array) -> jax.Array:
    return scores_BxR - self.lexical.noise(query, passage)
