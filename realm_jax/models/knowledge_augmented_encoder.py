"""The knowledge-augmented encoder: predicts a query's masked wordpieces from query and passage.

It reads `[CLS] x [SEP] z [SEP]`, so that p(y|z,x) is computed with full cross-attention between x
and z (Guu et al. 2020, section 3.2).
"""

import flax.linen as nn
import jax

from realm_jax.devices import datatypes
from realm_jax.models import bert
from realm_jax.models.bucketed import in_buckets
from realm_jax.models.typed_module import TypedModule


class KnowledgeAugmentedEncoder(TypedModule):
  """BERT with its masked-LM head: dense, activation, layer norm, tied word embeddings, bias."""

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
    hidden_FxMxD = in_buckets(
      lambda tokens, positions_FxM: encoder(
        tokens, deterministic=deterministic, positions_FxQ=positions_FxM
      ),
      joint,
      mlm_positions_FxM,
      buckets=buckets,
    )
    transform = bert.Dense(config, (config.hidden_size,), ("embed", "embed_out"), name="mlm_dense")
    norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="embed", name="mlm_norm")
    hidden_FxMxD = norm(bert.activation(config, transform(hidden_FxMxD)))
    bias_V = self.param(
      "mlm_bias",
      nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",)),
      (config.vocab_size,),
    )
    return encoder.word_logits(hidden_FxMxD) + bias_V[None, None, :]
