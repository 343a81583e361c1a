"""Question answering: the span reader, and retriever and span reader together.

The reader scores every short span of a passage as the answer to a question. It reads
`[CLS] x [SEP] z [SEP]`; a span's score is an MLP over the vectors of its first and its last
wordpiece (Lee et al. 2019, section 5.2), or the sum of a linear score of each (Devlin et al. 2019,
section 4.2).
"""

import dataclasses

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.foundations import choices
from realm_jax.models import bert
from realm_jax.models.bert import TypedModule
from realm_jax.models.encoder import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanReaderConfig(choices.Checked):
  """Settings of a span reader.

  Attributes:
    bert: Configuration of the encoder.
    max_span_width: Maximum wordpieces W of a span.
    span_hidden_size: Width U of the MLP; 0 adds linear scores of first and last wordpiece, as
      `BertForQuestionAnswering` does.
    layer_norm_epsilon: Epsilon of the MLP's layer norm.
  """

  bert: bert.BertConfig
  max_span_width: choices.Count = 10
  span_hidden_size: choices.CountOrZero = 256
  layer_norm_epsilon: choices.PositiveOrZero = 1e-3


class SpanReader(TypedModule):
  """BERT with a score for each span: dense(layer norm(relu(start projection + end projection))).

  Without an MLP it is the sum of the two projections, which are numbers.
  """

  config: SpanReaderConfig

  @nn.compact
  def __call__(self, joint: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 `logits_FxTxW` of joint inputs `Tokens` `[F, T]`.

    Entry `[f, t, w]` is the span of wordpieces t to t + w; spans not entirely in the passage have
    the lowest float32. The last token of segment 1 is the `[SEP]` that ends the passage.
    """
    config = self.config
    hidden_FxTxD = bert.BertEncoder(config.bert, name="bert")(joint, deterministic=deterministic)
    inside_FxT = passage_wordpieces(joint)
    lowest, wide = jnp.finfo(jnp.float32).min, bert.wide_dtype(config.bert)
    if size := config.span_hidden_size:
      dense = bert.Dense(config.bert, (2 * size,), ("embed", "mlp"), name="span_dense")
      parts_FxTx2U = dense(hidden_FxTxD)
      norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="mlp", name="span_norm")
      score = bert.Dense(config.bert, (1,), ("mlp", "projection"), name="span_score")
    else:
      dense = bert.Dense(config.bert, (2,), ("embed", "projection"), name="span_score")
      parts_FxTx2U = dense(hidden_FxTxD).astype(wide)
    starts_FxTxU, ends_FxTxU = jnp.split(parts_FxTx2U, 2, axis=-1)
    logits = []
    for width in range(min(config.max_span_width, joint.shape[-1])):
      rows_FxTxU = starts_FxTxU + _shifted(ends_FxTxU, width)
      rows_FxTx1 = score(norm(jax.nn.relu(rows_FxTxU))) if size else rows_FxTxU
      valid_FxT = inside_FxT & _shifted(inside_FxT, width)
      logits.append(jnp.where(valid_FxT, rows_FxTx1[..., 0].astype(wide), lowest))
    return jnp.stack(logits, axis=-1)


def passage_wordpieces(joint: datatypes.Tokens) -> jax.Array:
  """Returns bool `[F, T]`, True for the wordpieces of the passage without its final `[SEP]`."""
  second = (joint.segments == 1) & joint.mask
  return second & _shifted(second, 1)


def _shifted(values: jax.Array, by: int) -> jax.Array:
  """Shifts axis 1 to the left and pads with zeros."""
  padding = [(0, 0)] * values.ndim
  padding[1] = (0, by)
  return jnp.pad(values, padding)[:, by:]


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
  span_reader_config: SpanReaderConfig

  def setup(self):
    self.dual_encoder = self.dual_encoder_config.make()
    self.span_reader = SpanReader(self.span_reader_config)

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
