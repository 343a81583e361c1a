"""The knowledge-augmented encoder: predicts a query's masked wordpieces from query and passage.

It reads `[CLS] x [SEP] z [SEP]`, so that p(y|z,x) is computed with full cross-attention between x
and z (Guu et al. 2020, section 3.2).
"""

import flax.linen as nn
import jax

from realm_jax.devices import datatypes
from realm_jax.models import bert
from realm_jax.models.copying import Copying, padded, with_copies
from realm_jax.models.encoder import in_buckets
from realm_jax.models.typed_module import TypedModule


class KnowledgeAugmentedEncoder(TypedModule):
  """BERT with its masked-LM head: dense, activation, layer norm, tied word embeddings, bias.

  With `BertConfig.copies` it also copies words of the passage; see `Copying`.
  """

  config: bert.BertConfig

  @nn.compact
  def __call__(
    self,
    joint: datatypes.Tokens,
    mlm_positions_FxM: jax.Array,
    *,
    deterministic: bool,
    buckets: datatypes.Buckets = (),
  ) -> jax.Array:
    """Returns float32 `logits_FxMxV` at the masked positions of joint inputs `Tokens` `[F, T]`."""
    config = self.config
    encoder = bert.BertEncoder(config, name="bert")
    copying = Copying(config, name="copying")

    def read(tokens: datatypes.Tokens, positions_FxM: jax.Array):
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
