"""Retriever and span reader together: scores of a beam, and span scores of the passages read."""

import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.models import span_reader
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.typed_module import TypedModule


@flax.struct.dataclass
class OpenQaOutputs:
  """Inputs of the objective.

  Attributes:
    scores_BxR: float32 retrieval scores of the beam.
    logits_BxKxTxW: float32 span scores of the first K passages.
  """

  scores_BxR: jax.Array
  logits_BxKxTxW: jax.Array


class OpenQaModel(TypedModule):
  """Scores a beam with the query encoder and the index's embeddings, and reads the best passages.

  If the batch has the dual encoder's inputs for the passages read, they are embedded afresh, which
  trains the passage encoder as well.
  """

  dual_encoder_config: EncoderConfig
  span_reader_config: span_reader.SpanReaderConfig

  def setup(self):
    self.dual_encoder = self.dual_encoder_config.make()
    self.span_reader = span_reader.SpanReader(self.span_reader_config)

  def __call__(self, batch: datatypes.RetrievedQuestions, *, deterministic: bool) -> OpenQaOutputs:
    """Returns the outputs for every passage of the beam, including empty slots."""
    num_queries, num_read, joint_length = batch.joint.shape
    query_BxE = self.dual_encoder.encode_query(batch.query, deterministic=deterministic)
    embeddings_BxRxE = batch.embeddings_BxRxE.astype(query_BxE.dtype)
    if batch.passage is not None:
      fresh_FxE = self.dual_encoder.encode_passage(
        batch.passage.reshape(num_queries * num_read, batch.passage.shape[-1]),
        deterministic=deterministic,
      )
      embeddings_BxRxE = jnp.concatenate(
        [fresh_FxE.reshape(num_queries, num_read, -1), embeddings_BxRxE[:, num_read:]], axis=1
      )
    scores_BxR = jnp.einsum("BE,BRE->BR", query_BxE, embeddings_BxRxE)
    logits_FxTxW = self.span_reader(
      batch.joint.reshape(num_queries * num_read, joint_length), deterministic=deterministic
    )
    return OpenQaOutputs(
      scores_BxR=scores_BxR / self.dual_encoder_config.temperature,
      logits_BxKxTxW=logits_FxTxW.reshape(num_queries, num_read, *logits_FxTxW.shape[1:]),
    )
