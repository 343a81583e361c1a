"""REALM's two networks together: retrieval scores and masked-LM logits of the same passages."""

import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.models import bert, encoder, knowledge_augmented_encoder
from realm_jax.models.bert import TypedModule
from realm_jax.models.encoder import EncoderConfig


@flax.struct.dataclass
class RealmOutputs:
  """Inputs of the objective.

  Attributes:
    scores_BxK: float32 inner products of freshly embedded queries and passages.
    logits_BxKxMxV: float32 masked-LM logits with each of the passages.
  """

  scores_BxK: jax.Array
  logits_BxKxMxV: jax.Array


class RealmPretrainingModel(TypedModule):
  """Scores the retrieved passages and reads the query with each; the two share no parameters.

  Attributes:
    dual_encoder_learns: False uses the scores with which the passages were found instead of
      embedding them again, and gives the dual encoder no gradient. The index must then be of the
      same dual encoder.
  """

  dual_encoder_config: EncoderConfig
  knowledge_augmented_encoder_config: bert.BertConfig
  dual_encoder_learns: bool = True

  def setup(self):
    self.dual_encoder = self.dual_encoder_config.make()
    self.knowledge_augmented_encoder = knowledge_augmented_encoder.KnowledgeAugmentedEncoder(
      self.knowledge_augmented_encoder_config
    )

  def __call__(
    self,
    batch: datatypes.RetrievedBatch,
    *,
    deterministic: bool,
    passage_BxKxE: jax.Array | None = None,
  ) -> RealmOutputs:
    """Returns the outputs for every query and passage of the batch, including empty slots.

    Args:
      passage_BxKxE: Embeddings of the passages, if already known.
    """
    num_queries, num_passages, joint_length = batch.joint.shape
    query = batch.queries.query
    if not self.dual_encoder_learns:
      query_BxE = self.dual_encoder.encode_query(query, deterministic=True)
      null_1x1xE = encoder.encode_null_passage(self.dual_encoder, batch.passage)[None]
      null_Bx1xE = jnp.repeat(null_1x1xE, num_queries, axis=0)
      null_Bx1 = encoder.scores(self.dual_encoder_config, query_BxE, null_Bx1xE)
      found_BxR = batch.stale_scores_BxK[:, 1:] / self.dual_encoder_config.temperature
      scores_BxK = jax.lax.stop_gradient(jnp.concatenate([null_Bx1, found_BxR], axis=1))
    elif passage_BxKxE is None:
      scores_BxK = self.dual_encoder(
        query, batch.passage, deterministic=deterministic, buckets=batch.passage_buckets
      )
    else:
      query_BxE = self.dual_encoder.encode_query(query, deterministic=deterministic)
      scores_BxK = encoder.scores(self.dual_encoder_config, query_BxE, passage_BxKxE)
    logits_FxMxV = self.knowledge_augmented_encoder(
      batch.joint.reshape(num_queries * num_passages, joint_length),
      jnp.repeat(batch.queries.mlm_positions_BxM, num_passages, axis=0),
      deterministic=deterministic,
      buckets=batch.joint_buckets,
    )
    return RealmOutputs(
      scores_BxK=scores_BxK,
      logits_BxKxMxV=logits_FxMxV.reshape(num_queries, num_passages, *logits_FxMxV.shape[1:]),
    )

  def encode_pairs(
    self, pairs: datatypes.Pairs, *, deterministic: bool
  ) -> tuple[jax.Array, jax.Array]:
    """Returns embeddings; see `Encoder.encode_pairs`."""
    return self.dual_encoder.encode_pairs(pairs, deterministic=deterministic)
