"""The knowledge-augmented encoder: predicts a query's masked wordpieces from query and passage.

It reads `[CLS] x [SEP] z [SEP]`, so that p(y|z,x) is computed with full cross-attention between x
and z (Guu et al. 2020, section 3.2). With `BertConfig.copies`, the masks of a query also point to
words of the passage (See et al. 2017).
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from realm_jax.devices.datatypes import Buckets, Tokens
from realm_jax.models import bert
from realm_jax.models.bert import TypedModule
from realm_jax.models.lengths import in_buckets

_REACH = 4  # words on each side
_NOWHERE = -1e9  # score of what is no word of the passage


class KnowledgeAugmentedEncoder(TypedModule):
  """BERT with its masked-LM head: dense, activation, layer norm, tied word embeddings, bias.

  With `BertConfig.copies` it also copies words of the passage; see `Copying`.
  """

  config: bert.BertConfig

  @nn.compact
  def __call__(
    self,
    joint: Tokens,
    mlm_positions_FxM: jax.Array,
    *,
    deterministic: bool,
    buckets: Buckets = (),
  ) -> jax.Array:
    """Returns float32 `logits_FxMxV` at the masked positions of joint inputs `Tokens` `[F, T]`."""
    config = self.config
    encoder = bert.BertEncoder(config, name="bert")
    copying = Copying(config, name="copying")

    def read(tokens: Tokens, positions_FxM: jax.Array):
      before_FxLxD, hidden_FxMxD = encoder.last_two(
        tokens, deterministic=deterministic, positions_FxQ=positions_FxM
      )
      if not config.copies:
        return hidden_FxMxD, None
      words_FxLxD = encoder.word_embedding(tokens.ids)
      scores_FxMxL = copying(tokens, positions_FxM, words_FxLxD, before_FxLxD, hidden_FxMxD)
      return hidden_FxMxD, padded(scores_FxMxL, joint.shape[1])

    hidden_FxMxD, scores_FxMxT = in_buckets(read, joint, mlm_positions_FxM, buckets=buckets)
    transform = bert.Dense(config, (config.hidden_size,), ("embed", "embed_out"), name="mlm_dense")
    norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="embed", name="mlm_norm")
    hidden_FxMxD = norm(bert.activation(config, transform(hidden_FxMxD)))
    bias_V = self.param(
      "mlm_bias",
      nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",)),
      (config.vocab_size,),
    )
    logits_FxMxV = encoder.word_logits(hidden_FxMxD) + bias_V[None, None, :]
    if scores_FxMxT is None:
      return logits_FxMxV
    return with_copies(logits_FxMxV, scores_FxMxT, joint.ids)


class Copying(TypedModule):
  """Scores the words of passages as answers to masks.

  The score of a word z_t for a mask m compares the words around both, by the same weights, so that
  a new reader already prefers what stands between the same words; and the contextual vectors of
  both, which it has to learn. exp(score) is added to exp(logit) of the word.
  """

  config: bert.BertConfig

  @nn.compact
  def __call__(
    self,
    joint: Tokens,
    positions_FxM: jax.Array,
    words_FxTxD: jax.Array,
    before_FxTxD: jax.Array,
    masked_FxMxD: jax.Array,
  ) -> jax.Array:
    """Returns float32 `scores_FxMxT`.

    Args:
      joint: Queries with their passages, `Tokens` `[F, T]`.
      positions_FxM: Positions of the masks.
      words_FxTxD: Embeddings of the words, without context.
      before_FxTxD: Contextual vectors before the last layer.
      masked_FxMxD: Those of the masks after it.
    """
    config = self.config
    vector = functools.partial(bert.Dense, config, (config.hidden_size,), ("embed", "embed_out"))
    words_FxTxD = jnp.where(joint.mask[..., None], words_FxTxD, 0) / config.initializer_range
    around_FxTxD = vector(name="around")(_neighbours(words_FxTxD))
    sought_FxMxD = jnp.take_along_axis(around_FxTxD, positions_FxM[..., None], axis=1)
    scores_FxMxT = _products(sought_FxMxD, around_FxTxD)
    scores_FxMxT += _products(vector(name="query")(masked_FxMxD), vector(name="key")(before_FxTxD))
    query_FxT = joint.mask & (joint.segments == 0)
    same_FxTxT = joint.ids[:, :, None] == joint.ids[:, None, :]
    repeats_FxT = jnp.any(same_FxTxT & query_FxT[:, None, :], axis=2)
    scores_FxMxT += self.param("repeats", nn.initializers.zeros, ()) * repeats_FxT[:, None, :]
    there_FxT = joint.mask & (joint.segments == 1)
    return jnp.where(there_FxT[:, None, :], scores_FxMxT, _NOWHERE)


def padded(scores_FxMxL: jax.Array, length: int) -> jax.Array:
  """Returns scores of `length` positions."""
  missing = length - scores_FxMxL.shape[2]
  return jnp.pad(scores_FxMxL, ((0, 0), (0, 0), (0, missing)), constant_values=_NOWHERE)


def with_copies(logits_FxMxV: jax.Array, scores_FxMxT: jax.Array, ids_FxT: jax.Array) -> jax.Array:
  """Returns the logits of words that may also be copied from the positions `ids_FxT`."""
  highest_FxMx1 = jnp.maximum(
    logits_FxMxV.max(axis=-1, keepdims=True), scores_FxMxT.max(axis=-1, keepdims=True)
  )
  highest_FxMx1 = jax.lax.stop_gradient(highest_FxMx1)
  rows_Fx1x1 = jnp.arange(len(ids_FxT))[:, None, None]
  masks_1xMx1 = jnp.arange(logits_FxMxV.shape[1])[None, :, None]
  total_FxMxV = jnp.exp(logits_FxMxV - highest_FxMx1)
  total_FxMxV = total_FxMxV.at[rows_Fx1x1, masks_1xMx1, ids_FxT[:, None, :]].add(
    jnp.exp(scores_FxMxT - highest_FxMx1)
  )
  return highest_FxMx1 + jnp.log(jnp.maximum(total_FxMxV, jnp.finfo(jnp.float32).tiny))


def _neighbours(words_FxTxD: jax.Array) -> jax.Array:
  """Returns the word before, the one after, and the sum of the next ones, `[F, T, 3D]`."""
  length = words_FxTxD.shape[1]
  padded_FxSxD = jnp.pad(words_FxTxD, ((0, 0), (_REACH, _REACH), (0, 0)))
  at = {d: padded_FxSxD[:, _REACH + d :][:, :length] for d in range(-_REACH, _REACH + 1)}
  further = [at[d] for d in at if abs(d) > 1]
  return jnp.concatenate([at[-1], at[1], sum(further) * len(further) ** -0.5], axis=-1)


def _products(some_FxMxD: jax.Array, all_FxTxD: jax.Array) -> jax.Array:
  products_FxMxT = jnp.einsum("FMD,FTD->FMT", some_FxMxD, all_FxTxD)
  return products_FxMxT.astype(jnp.float32) * some_FxMxD.shape[-1] ** -0.5
