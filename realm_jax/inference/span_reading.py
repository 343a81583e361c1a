"""Reads the best spans off the model's outputs, and with what probability."""

import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.datatypes import Array


@flax.struct.dataclass
class SpanReading:
  """The best C spans of each question, best first.

  Attributes:
    slots_BxC: which of the passages read.
    starts_BxC: first wordpiece in the joint input.
    ends_BxC: last wordpiece.
    log_probs_BxC: log p(y,z|x) in the one softmax over all spans of all passages; the lowest
      float32 where there is no further span.
    reader_log_probs_BxC: log p(y|z,x), among the spans of the passage alone.
    scores_BxK: retrieval scores of the passages read.
    retrieval_log_probs_BxK: log p(z|x), among the passages read.
  """

  slots_BxC: Array
  starts_BxC: Array
  ends_BxC: Array
  log_probs_BxC: Array
  reader_log_probs_BxC: Array
  scores_BxK: Array
  retrieval_log_probs_BxK: Array


def best_spans(
  joint_BxS: jax.Array,
  logits_BxKxTxW: jax.Array,
  scores_BxK: jax.Array,
  *,
  valid_BxK: jax.Array,
  num_spans: int,
) -> SpanReading:
  """Returns the best spans; pure, to be jitted by the caller.

  Args:
    joint_BxS: span score plus retrieval score, `[B, K * T * W]`.
    logits_BxKxTxW: span scores.
    scores_BxK: retrieval scores.
    valid_BxK: False where a slot has no passage.
    num_spans: C.
  """
  num_widths = logits_BxKxTxW.shape[3]
  spans_of_passage = logits_BxKxTxW.shape[2] * num_widths
  best_BxC, index_BxC = jax.lax.top_k(joint_BxS, min(num_spans, joint_BxS.shape[1]))
  slots_BxC = index_BxC // spans_of_passage
  starts_BxC = index_BxC % spans_of_passage // num_widths
  logits_BxS = logits_BxKxTxW.reshape(joint_BxS.shape)
  norms_BxK = jax.nn.logsumexp(logits_BxKxTxW, axis=(2, 3))
  lowest = jnp.finfo(jnp.float32).min
  log_probs_BxC = best_BxC - jax.nn.logsumexp(joint_BxS, axis=1, keepdims=True)
  return SpanReading(
    slots_BxC=slots_BxC,
    starts_BxC=starts_BxC,
    ends_BxC=starts_BxC + index_BxC % num_widths,
    log_probs_BxC=jnp.where(best_BxC > lowest, log_probs_BxC, lowest),
    reader_log_probs_BxC=(
      jnp.take_along_axis(logits_BxS, index_BxC, axis=1)
      - jnp.take_along_axis(norms_BxK, slots_BxC, axis=1)
    ),
    scores_BxK=scores_BxK,
    retrieval_log_probs_BxK=jax.nn.log_softmax(jnp.where(valid_BxK, scores_BxK, lowest)),
  )
