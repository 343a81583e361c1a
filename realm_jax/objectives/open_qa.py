"""The objective of open-domain question answering (Lee et al. 2019, section 6).

The loss is the sum of two negative log marginal likelihoods: that of the passages with an answer in
a large beam, under a softmax of the retrieval scores ("early update"); and that of the answer
spans, under one softmax of span score plus retrieval score over all spans of all passages read.
Everything is float32, and every mean is over the real questions of the whole batch.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.devices.datatypes import Array, Mean
from realm_jax.models import lengths
from realm_jax.objectives.objective import LOSS, Loss, Metrics, Objective, dropout_keywords

_LOWEST = jnp.finfo(jnp.float32).min
_LOGGED = {
  "loss": LOSS,
  "retrieval_loss": "loss/retrieval",
  "reader_loss": "loss/reader",
  "span_exact_match": "answers/span_exact_match",
  "reader_oracle": "answers/reader_oracle",
  "answer_in_beam": "answers/in_beam",
  "answer_read": "answers/in_passages_read",
  "without_answer": "answers/without",
}


@dataclasses.dataclass(frozen=True)
class OpenQa(Objective):
  """The answers of `RetrievedQuestions`, and the passages that have them."""

  def build(self, model: Any) -> Loss:
    """Returns the objective of an `OpenQaModel`."""

    def outputs(params, batch, key) -> tuple[Array, Array]:
      found = model.apply({"params": params}, batch, **dropout_keywords(key))
      return found.scores_BxR, found.logits_BxKxTxW

    def score(found: tuple[Array, Array], batch: datatypes.RetrievedQuestions) -> Metrics:
      return {_LOGGED[name]: mean for name, mean in open_qa(*found, batch).items()}

    return Loss(outputs, score, ways=_ways)


def _ways(batch: datatypes.RetrievedQuestions, of_corpus: datatypes.Lengths) -> lengths.Ways:
  with_question = lengths.after_queries(of_corpus, batch.query.shape[-1])
  sequences = {"joint": lengths.Sequences(batch.joint, with_question)}
  if batch.passage is not None:
    sequences["passage"] = lengths.Sequences(batch.passage, of_corpus)
  return lengths.ways(batch, **sequences)


def open_qa(
  scores_BxR: jax.Array, logits_BxKxTxW: jax.Array, batch: datatypes.RetrievedQuestions
) -> dict[str, Mean]:
  """Returns the metrics of one batch, as means over its real questions.

  A question contributes no retrieval loss if no passage of its beam has an answer, and no reader
  loss if no span read is an answer. The metrics:
    loss: the sum of the next two.
    retrieval_loss: -log of the share of answer passages in the softmax over the beam.
    reader_loss: -log of the share of answer spans in the softmax over all spans read.
    answer_in_beam: whether a passage of the beam has an answer.
    answer_read: whether a passage read has an answer.
    reader_oracle: whether a span read is an answer.
    span_exact_match: whether the best span is an answer.
    without_answer: whether neither loss applies.

  Args:
    logits_BxKxTxW: Span scores of the first K passages; the lowest float32 marks no span.
    batch: Provides the labels, and which questions are real.
  """
  num_read = logits_BxKxTxW.shape[1]
  has_answer_BxR = batch.has_answer_BxR & batch.valid_BxR
  scores_BxR = jnp.where(batch.valid_BxR, scores_BxR, _LOWEST)
  retrieval_loss_B = _marginal_loss(scores_BxR, has_answer_BxR)
  joint_BxS = joint_logits(scores_BxR[:, :num_read], logits_BxKxTxW)
  gold_BxS = batch.gold_BxKxTxW.reshape(joint_BxS.shape) & (joint_BxS > _LOWEST)
  reader_loss_B = _marginal_loss(joint_BxS, gold_BxS)

  best_B = jnp.argmax(joint_BxS, axis=1)
  in_beam_B, gold_B = jnp.any(has_answer_BxR, axis=1), jnp.any(gold_BxS, axis=1)
  metrics_B = {
    "loss": retrieval_loss_B + reader_loss_B,
    "retrieval_loss": retrieval_loss_B,
    "reader_loss": reader_loss_B,
    "answer_in_beam": in_beam_B,
    "answer_read": jnp.any(has_answer_BxR[:, :num_read], axis=1),
    "reader_oracle": gold_B,
    "span_exact_match": jnp.take_along_axis(gold_BxS, best_B[:, None], axis=1)[:, 0],
    "without_answer": ~in_beam_B & ~gold_B,
  }
  return {name: Mean.of(values_B, batch.weights_B) for name, values_B in metrics_B.items()}


def joint_logits(scores_BxK: jax.Array, logits_BxKxTxW: jax.Array) -> jax.Array:
  """Returns span score plus retrieval score, `[B, K * T * W]`; the lowest float32 marks no span.

  Args:
    scores_BxK: Scores of the passages read; the lowest float32 for empty slots.
    logits_BxKxTxW: See `open_qa`.
  """
  scores_BxKx1x1 = scores_BxK[:, :, None, None]
  valid_BxKxTxW = (logits_BxKxTxW > _LOWEST) & (scores_BxKx1x1 > _LOWEST)
  joint_BxKxTxW = jnp.where(valid_BxKxTxW, logits_BxKxTxW + scores_BxKx1x1, _LOWEST)
  return joint_BxKxTxW.reshape(joint_BxKxTxW.shape[0], -1)


def _marginal_loss(logits_BxS, right_BxS):
  """Returns -log of the share of the right entries in the softmax `[B]`; 0 where none is right."""
  right_B = jax.nn.logsumexp(jnp.where(right_BxS, logits_BxS, _LOWEST), axis=1)
  loss_B = jax.nn.logsumexp(logits_BxS, axis=1) - right_B
  return jnp.where(jnp.any(right_BxS, axis=1), loss_B, 0.0)
