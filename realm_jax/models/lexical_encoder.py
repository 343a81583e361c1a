"""The lexical encoder: BM25's weights of words, projected at random to dense vectors.

The vector of a text is the sum over its terms of weight × sign vector of the term. Sign vectors are
pseudo-random and nearly orthogonal, so the inner product of a query and a passage is BM25's score
(Robertson and Zaragoza 2009) and noise, which falls with the square root of the width E (Achlioptas
2003). Query and passage have half of the inverse document frequency each, which keeps the noise of
frequent terms low. The noise matters only for what an index finds: of the best candidates, and of
all passages in a training step, scores are computed exactly.

A word that the vocabulary has whole is one term with its inflections; of other words, each piece is
a term. A wordpiece stands for a term: the first of those that share a stem.

What is learned is a factor of each term's weight in queries. Passages need none, because a score
depends only on the product of a term's two weights; so their vectors stay, and an index with them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices.datatypes import Array, Tokens
from realm_jax.foundations import choices
from realm_jax.models.bert import TypedModule
from realm_jax.models.encoder import Encoder, EncoderConfig
from realm_jax.text.analysis import Analyzer
from realm_jax.text.languages import UNDETERMINED
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces

_SIGNS = 32  # of one hash
_NO_TERM = -30.0  # log weight of wordpieces that are no terms, such as punctuation
_CONTINUES = -1  # in place of a term: the wordpiece continues a word
_NONE = 0  # [PAD], in place of a term
_ROWS = 2048  # passages that are counted together


@dataclasses.dataclass(frozen=True, kw_only=True)
class LexicalEncoderConfig(EncoderConfig):
  """Settings of a lexical encoder.

  Attributes:
    vocab_size: Wordpieces of the vocabulary.
    projection_size: Width E of the vectors, a multiple of 32.
    k1: Saturation of repeated terms.
    b: Strength of the length normalisation.
    candidates: Number of passages found by their vectors that are scored exactly.
  """

  vocab_size: choices.Count = 30_522
  projection_size: choices.Count = 1024
  k1: choices.PositiveOrZero = 0.9
  b: choices.Share = 0.4
  candidates: choices.Count = 400

  def __post_init__(self):
    super().__post_init__()
    if self.projection_size % _SIGNS:
      raise ValueError(f"projection_size={self.projection_size}; give a multiple of {_SIGNS}")

  def make(self) -> "LexicalEncoder":
    return LexicalEncoder(self)

  @property
  def num_candidates(self) -> int:
    return self.candidates

  def rescoring_params(self, params: Mapping) -> Mapping:
    return params

  def check(self, vocabulary: WordPieces, *, name: str = "dual_encoder", **lengths: int) -> None:
    super().check(vocabulary, name=name, **lengths)
    if vocabulary.vocab_size > self.vocab_size:
      raise ValueError(
        f"the vocabulary has {vocabulary.vocab_size} wordpieces, but {name} has vocab_size="
        f"{self.vocab_size}; raise it"
      )

  def separated(self) -> tuple[EncoderConfig, Mapping[str, str]]:
    parts = sorted(self.parts("query") | self.parts("passage"))
    return self, dict(zip(parts, parts, strict=True))  # only what is the query's alone is trained

  def from_corpus(self, store, vocabulary: WordPieces) -> Mapping[str, Any]:
    return _parameters(store, vocabulary, size=self.vocab_size)


class _Constant(TypedModule):
  """Numbers that training does not change."""

  init_fn: Callable
  shape: tuple[int, ...]

  @nn.compact
  def __call__(self) -> jax.Array:
    return jax.lax.stop_gradient(self.param("values", self.init_fn, self.shape))


class LexicalEncoder(Encoder):
  """Embeds queries and passages by their terms.

  It learns the log of a factor of each term in queries. Its constants are BM25's: the term of each
  wordpiece, the log weights of terms on both sides, and the mean length of passages in terms.
  """

  config: LexicalEncoderConfig

  def setup(self):
    size = (self.config.vocab_size,)
    self.terms = _Constant(_own_terms, size)
    self.mean_length = _Constant(nn.initializers.ones, ())
    self.query_log_weights = _Constant(nn.initializers.zeros, size)
    self.passage_log_weights = _Constant(nn.initializers.zeros, size)
    # A matrix, so that weight decay applies and keeps what is learned near BM25.
    self.log_factors = nn.Embed(*size, 1, embedding_init=nn.initializers.zeros)

  def encode_query(self, tokens: Tokens, *, deterministic: bool = True) -> jax.Array:
    del deterministic
    return random_projection(*self._query(tokens), size=self.config.projection_size)

  def encode_passage(self, tokens: Tokens, *, deterministic: bool = True) -> jax.Array:
    del deterministic
    return random_projection(*self._passage(tokens), size=self.config.projection_size)

  def rescored(self, query: Tokens, passage: Tokens, scores_BxR: jax.Array) -> jax.Array:
    del scores_BxR
    num_queries, num_passages, length = passage.shape
    terms_BxL, weights_BxL = self._query(query)
    terms_FxP, weights_FxP = self._passage(passage.reshape(-1, length))
    terms_BxKP = terms_FxP.reshape(num_queries, -1)
    weights_BxKP = weights_FxP.reshape(num_queries, -1)
    shared_BxLxKP = terms_BxL[:, :, None] == terms_BxKP[:, None, :]
    matched_BxKP = jnp.sum(jnp.where(shared_BxLxKP, weights_BxL[:, :, None], 0), axis=1)
    return (matched_BxKP * weights_BxKP).reshape(num_queries, num_passages, length).sum(axis=2)

  def encode_pairs(
    self, query: Tokens, passage: Tokens, *, deterministic: bool = True
  ) -> tuple[tuple[jax.Array, jax.Array], ...]:
    del deterministic
    return tuple(
      (terms_FxL.astype(jnp.float32), weights_FxL)  # exact for all ids
      for terms_FxL, weights_FxL in (self._query(query), self._passage(passage))
    )

  def pair_scores(self, query, passage) -> jax.Array:
    """Returns the exact `scores_BxF`, a product over the terms that the queries have."""
    num_terms = min(self.config.vocab_size, query[0].size)
    in_queries_V = jnp.zeros(self.config.vocab_size, bool).at[query[0].astype(jnp.int32)].set(True)
    column_V = jnp.where(in_queries_V, jnp.cumsum(in_queries_V) - 1, num_terms)

    def by_term(terms_FxL: jax.Array, weights_FxL: jax.Array) -> jax.Array:
      rows_Fx1 = jnp.arange(len(terms_FxL))[:, None]
      columns_FxL = column_V[terms_FxL.astype(jnp.int32)]
      zeros_FxT = jnp.zeros((len(terms_FxL), num_terms), jnp.float32)
      return zeros_FxT.at[rows_Fx1, columns_FxL].add(weights_FxL, mode="drop")

    return jnp.matmul(by_term(*query), by_term(*passage).T, precision="highest")

  def _query(self, tokens: Tokens) -> tuple[jax.Array, jax.Array]:
    """Returns the term and the weight of each wordpiece, `[F, L]`."""
    terms_FxL = _term_of_each(self.terms(), tokens)
    log_weights_FxL = self.query_log_weights()[terms_FxL] + self.log_factors(terms_FxL)[..., 0]
    return terms_FxL, jnp.exp(log_weights_FxL) * tokens.mask

  def _passage(self, tokens: Tokens) -> tuple[jax.Array, jax.Array]:
    """Returns the term and the weight of each wordpiece, `[F, L]`."""
    k1, b = self.config.k1, self.config.b
    terms_FxL = _term_of_each(self.terms(), tokens)
    log_weights_FxL = self.passage_log_weights()[terms_FxL]
    counted_FxL = tokens.mask & (log_weights_FxL > _NO_TERM / 2)
    length_Fx1 = jnp.sum(counted_FxL, axis=1, keepdims=True) / self.mean_length()
    same_FxLxL = terms_FxL[:, :, None] == terms_FxL[:, None, :]
    frequency_FxL = jnp.sum(same_FxLxL & tokens.mask[:, None, :], axis=2)
    # A term's weight, idf × tf / (tf + K), in equal shares for each of its tf occurrences.
    shares_FxL = 1 / jnp.maximum(frequency_FxL + k1 * (1 - b + b * length_Fx1), 1.0)
    return terms_FxL, jnp.exp(log_weights_FxL) * shares_FxL * counted_FxL


def random_projection(terms_FxL: jax.Array, weights_FxL: jax.Array, *, size: int) -> jax.Array:
  """Returns `[F, E]`: the sums over L of weights × sign vectors of terms, of length 1.

  The signs are the bits of hashes of the terms, so there is no table of them.
  """
  num_hashes = size // _SIGNS
  bit_S = jnp.arange(_SIGNS, dtype=jnp.uint32)
  number_W = jnp.arange(num_hashes, dtype=jnp.uint32)

  # Signs are hashed again in the backward pass: kept, they would be the largest array by far.
  @jax.checkpoint
  def add(total_FxSxW, term):
    terms_F, weights_F = term
    hashes_FxW = _hashed(_hashed(terms_F.astype(jnp.uint32))[:, None] + number_W[None])
    sign_bits = (hashes_FxW[:, None, :] << bit_S[None, :, None]) & jnp.uint32(1 << 31)
    signs = jax.lax.bitcast_convert_type(sign_bits | jnp.uint32(0x3F800000), jnp.float32)  # ±1
    return total_FxSxW + weights_F[:, None, None] * signs, None

  # The minor axis is that of hashes, which a CPU computes eight or sixteen at a time.
  start = jnp.zeros((len(terms_FxL), _SIGNS, num_hashes), jnp.float32)
  total_FxSxW, _ = jax.lax.scan(add, start, (terms_FxL.T, weights_FxL.T))
  return total_FxSxW.reshape(len(terms_FxL), size) / size**0.5


def _hashed(numbers: jax.Array) -> jax.Array:
  """Returns 32 bits for each number; a bit of the number changes about half of them."""
  numbers = (numbers + jnp.uint32(1)) * jnp.uint32(0x9E3779B1)
  numbers = (numbers ^ (numbers >> 15)) * jnp.uint32(0x85EBCA77)
  numbers = (numbers ^ (numbers >> 13)) * jnp.uint32(0xC2B2AE3D)
  return numbers ^ (numbers >> 16)


def _own_terms(key: jax.Array, shape: tuple[int]) -> jax.Array:
  del key
  return jnp.arange(shape[0], dtype=jnp.float32)  # exact for all ids


def _parameters(store, vocabulary: WordPieces, *, size: int) -> dict[str, dict[str, np.ndarray]]:
  """Returns the constants of a `LexicalEncoder`: the weights that BM25 has in a corpus."""
  languages = store.metadata.languages
  first: dict[str, int] = {}  # the term of each stem
  terms_V = np.arange(size)
  for i, stem in enumerate(_stems(vocabulary, languages)):
    terms_V[i] = _CONTINUES if stem is None else first.setdefault(stem, i) if stem else _NONE
  num_passages_V, mean_length = _counted(store, terms_V)
  idf_V = np.log1p((len(store) - num_passages_V + 0.5) / (num_passages_V + 0.5))
  passage_V = np.log(np.maximum(idf_V, 1e-3)) / 2
  passage_V[[vocabulary.vocabulary.index(token) for token in SPECIAL_TOKENS]] = _NO_TERM
  query_V = passage_V.copy()
  for language in languages:
    idle = Analyzer([language]).idle(language)
    query_V[[first[word] for word in idle if word in first]] = _NO_TERM
  found = {
    "query_log_weights": query_V,
    "passage_log_weights": passage_V,
    "terms": terms_V,
    "mean_length": np.array(mean_length),
  }
  return {name: {"values": values.astype(np.float32)} for name, values in found.items()}


def _term_of_each(terms_V: Array, tokens: Tokens) -> Array:
  """Returns the term of each wordpiece `[F, L]`: of the word that it is, or of the piece itself."""
  of_words_FxL = jnp.asarray(terms_V)[tokens.ids].astype(jnp.int32)
  continues_FxL = (of_words_FxL < 0) & tokens.mask
  continued_FxL = jnp.pad(continues_FxL[:, 1:], ((0, 0), (0, 1)))
  return jnp.where(continues_FxL | continued_FxL, tokens.ids, of_words_FxL)


def _stems(vocabulary: WordPieces, languages: Sequence[str]) -> list[str | None]:
  """Returns the stem of each wordpiece: "" if it is no term, None if it continues a word."""
  # A word alone does not tell its language: among several, words are compared by their beginnings.
  analyzer = Analyzer(languages if len(languages) == 1 else [UNDETERMINED])
  return [
    None if word.startswith("##") else "" if word in SPECIAL_TOKENS else _stem(analyzer, word)
    for word in vocabulary.vocabulary
  ]


def _stem(analyzer: Analyzer, word: str) -> str:
  return "".join(analyzer.terms(word)[:1])


def _counted(store, terms_V: np.ndarray) -> tuple[np.ndarray, float]:
  """Returns the number of passages with each term `[V]`, and their mean length in terms."""
  num_passages_V, num_terms = np.zeros(len(terms_V), np.int64), 0
  length = store.metadata.max_passage_length
  for start in range(0, len(store), _ROWS):
    rows = np.arange(start, min(start + _ROWS, len(store)))
    columns = [read(rows, length=length)[0] for read in (store.title_ids, store.body_ids)]
    ids_FxL = np.concatenate(columns, axis=1)
    terms_FxL = np.asarray(_term_of_each(terms_V, Tokens(ids_FxL, ids_FxL > 0, ids_FxL)))
    num_terms += np.count_nonzero(terms_FxL)
    sorted_FxL = np.sort(terms_FxL, axis=1)
    first_FxL = np.diff(sorted_FxL, axis=1, prepend=-1) != 0
    num_passages_V += np.bincount(sorted_FxL[first_FxL], minlength=len(terms_V))
  return num_passages_V, max(num_terms / max(len(store), 1), 1.0)
