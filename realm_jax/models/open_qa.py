"""Question answering: the span reader, and retriever and span reader together.

The reader scores every short span of a passage as the answer to a question. It reads
`[CLS] x [SEP] z [SEP]`; a span's score is an MLP over the vectors of its first and its last
wordpiece (Lee et al. 2019, section 5.2), or the sum of a linear score of each (Devlin et al. 2019,
section 4.2).
"""

import dataclasses
import functools

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.foundations import choices
from realm_jax.models import bert
from realm_jax.models.bert import TypedModule
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.lengths import in_buckets


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
  def __call__(
    self, joint: datatypes.Tokens, *, deterministic: bool, buckets: datatypes.Buckets = ()
  ) -> jax.Array:
    """Returns float32 `logits_FxTxW` of joint inputs `Tokens` `[F, T]`.

    Entry `[f, t, w]` is the span of wordpieces t to t + w; spans not entirely in the passage have
    the lowest float32. The last token of segment 1 is the `[SEP]` that ends the passage.
    """
    config = self.config
    lowest = jnp.finfo(jnp.float32).min
    num_positions = joint.shape[-1]
    num_widths = min(config.max_span_width, num_positions)
    encoder = bert.BertEncoder(config.bert, name="bert")
    if size := config.span_hidden_size:
      dense = bert.Dense(config.bert, (2 * size,), ("embed", "mlp"), name="span_dense")
      norm = bert.layer_norm(epsilon=config.layer_norm_epsilon, axis="mlp", name="span_norm")
      score = bert.Dense(config.bert, (1,), ("mlp", "projection"), wide=True, name="span_score")
    else:
      axes = ("embed", "projection")
      dense = bert.Dense(config.bert, (2,), axes, wide=True, name="span_score")

    def scored(tokens: datatypes.Tokens) -> jax.Array:
      parts_FxLx2U = dense(encoder(tokens, deterministic=deterministic))
      starts_FxLxU, ends_FxLxU = jnp.split(parts_FxLx2U, 2, axis=-1)
      inside_FxL = passage_wordpieces(tokens)
      logits = []
      for width in range(num_widths):
        rows_FxLxU = starts_FxLxU + _shifted(ends_FxLxU, width)
        rows_FxLx1 = score(norm(jax.nn.relu(rows_FxLxU))) if size else rows_FxLxU
        valid_FxL = inside_FxL & _shifted(inside_FxL, width)
        logits.append(jnp.where(valid_FxL, rows_FxLx1[..., 0], lowest))
      missing = num_positions - tokens.shape[-1]
      logits_FxLxW = jnp.stack(logits, axis=-1)
      return jnp.pad(logits_FxLxW, ((0, 0), (0, missing), (0, 0)), constant_values=lowest)

    return in_buckets(scored, joint, buckets=buckets)


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
      fresh_FxE = in_buckets(
        functools.partial(self.dual_encoder.encode_passage, deterministic=deterministic),
        batch.passage.reshape(num_queries * num_read, batch.passage.shape[-1]),
        buckets=batch.passage_buckets,
      )
      embeddings_BxRxE = jnp.concatenate(
        [fresh_FxE.reshape(num_queries, num_read, -1), embeddings_BxRxE[:, num_read:]], axis=1
      )
    scores_BxR = jnp.einsum("BE,BRE->BR", query_BxE, embeddings_BxRxE)
    logits_FxTxW = self.span_reader(
      batch.joint.reshape(num_queries * num_read, joint_length),
      deterministic=deterministic,
      buckets=batch.joint_buckets,
    )
    return OpenQaOutputs(
      scores_BxR=scores_BxR / self.dual_encoder_config.temperature,
      logits_BxKxTxW=logits_FxTxW.reshape(num_queries, num_read, *logits_FxTxW.shape[1:]),
    )
