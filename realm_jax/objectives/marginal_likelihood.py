"""REALM's objective: the likelihood of the masked words, marginalized over retrieved passages.

p(y|x) = Σ_z p(z|x) p(y|z,x) over K passages, where p(z|x) is the softmax of the retrieval scores
(Guu et al. 2020, equation 1). Everything is float32, and every mean is over the whole batch, also
if it is sharded.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from realm_jax.devices import datatypes
from realm_jax.devices.datatypes import Mean
from realm_jax.foundations import choices
from realm_jax.models import lengths
from realm_jax.objectives.objective import Loss, Metrics, Objective, dropout_keywords, grouped

Marginalization = Literal["span", "token"]
_LOWEST = jnp.finfo(jnp.float32).min


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalLikelihood(Objective):
  """The likelihood of the masked words of `RetrievedBatch`es.

  Attributes:
    marginalize: "span", the paper's sum over passages of a span's probability, or "token", the
      released code's.
  """

  marginalize: Marginalization = "span"

  def build(self, model: Any) -> Loss:
    """Returns the objective of a `RealmPretrainingModel`."""

    def outputs(params, batch, key):
      return model.apply({"params": params}, batch, **dropout_keywords(key))

    def score(found, batch: datatypes.RetrievedBatch) -> Metrics:
      metrics = masked_lm_over_retrieval(
        found.scores_BxK,
        found.logits_BxKxMxV,
        batch,
        marginalize=self.marginalize,
      )
      return grouped(
        metrics, "retrieval", loss=("masked_token_accuracy", "span_accuracy", "null_span_accuracy")
      )

    def rows(batch: datatypes.RetrievedBatch) -> datatypes.RetrievedBatch:
      return dataclasses.replace(batch, pairs=None)

    return Loss(outputs, score, rows=rows, ways=_ways)


def _ways(batch: datatypes.RetrievedBatch, of_corpus: datatypes.Lengths) -> lengths.Ways:
  query_length = batch.queries.query.shape[-1]
  return lengths.ways(
    batch,
    passage=lengths.Sequences(batch.passage[:, 1:], of_corpus),
    joint=lengths.Sequences(
      batch.joint, lengths.after_queries(of_corpus, query_length), null_length=query_length + 1
    ),
  )


def marginal_log_likelihood(
  scores_BxK: jax.Array,
  log_probs_BxKxM: jax.Array,
  weights_BxM: jax.Array,
  *,
  valid_BxK: jax.Array,
  marginalize: Marginalization,
) -> jax.Array:
  """Returns log p(y|x) `[B]`; 0 where an example has no masks.

  Args:
    log_probs_BxKxM: log p(y_m|z,x) of each masked token with each passage.
    weights_BxM: 1 for a real mask, 0 for padding.
    valid_BxK: False for empty slots, which get no probability.
    marginalize: "span", log Σ_z p(z|x) Π_m p(y_m|z,x), as in the paper; or "token",
      Σ_m log Σ_z p(z|x) p(y_m|z,x), as in the released code.
  """
  choices.check(Marginalization, marginalize=marginalize)
  log_prior_BxK = _retrieval_log_probs(scores_BxK, valid_BxK)
  if marginalize == "span":
    log_p_y_BxK = jnp.einsum("BKM,BM->BK", log_probs_BxKxM, weights_BxM)
    return jax.nn.logsumexp(log_prior_BxK + log_p_y_BxK, axis=1)
  log_p_y_BxM = jax.nn.logsumexp(log_prior_BxK[..., None] + log_probs_BxKxM, axis=1)
  return jnp.sum(log_p_y_BxM * weights_BxM, axis=1)


def masked_lm_over_retrieval(
  scores_BxK: jax.Array,
  logits_BxKxMxV: jax.Array,
  batch: datatypes.RetrievedBatch,
  *,
  marginalize: Marginalization,
) -> dict[str, Mean]:
  """Returns the metrics of one batch, excluding examples without masks.

    loss: -log p(y|x), per example ("span") or per mask ("token").
    masked_token_accuracy: share of masks whose target is the most likely word of
      Σ_z p(z|x) p(·|z,x); a tie is wrong.
    span_accuracy: share of examples with all masks right.
    null_span_accuracy: share of examples with all masks right when only the null passage is read.
    retrieval_utility: log p(y|x) - log p(y|null,x), per mask.
    null_mass: mean p(null|x).
    retrieval_entropy: mean entropy of p(z|x) over the passages read, nats.
    positive_utility_share: share of examples with a passage that makes y more likely than the null
      passage does.
    proposed_mass: mean probability Σ p(z|x, y) of passages that only the posterior proposed.
    stale_rank_correlation: mean Spearman correlation between the index's scores and the fresh ones
      over the real passages that the index found, for examples where it is defined.

  Args:
    scores_BxK: Fresh retrieval scores.
    logits_BxKxMxV: Masked-LM logits with each passage.
    batch: Provides targets, weights, valid slots and the index's scores; slot 0 is the null
      passage.
    marginalize: See `marginal_log_likelihood`.
  """
  targets_BxM, weights_BxM = batch.queries.mlm_targets_BxM, batch.queries.mlm_weights_BxM
  log_norms_BxKxM = jax.nn.logsumexp(logits_BxKxMxV, axis=-1)
  log_probs_BxKxM = _at_targets(logits_BxKxMxV, targets_BxM) - log_norms_BxKxM
  log_p_y_B = marginal_log_likelihood(
    scores_BxK,
    log_probs_BxKxM,
    weights_BxM,
    valid_BxK=batch.valid_BxK,
    marginalize=marginalize,
  )
  has_mask_B = jnp.any(weights_BxM > 0, axis=1).astype(jnp.float32)
  counts_B = has_mask_B if marginalize == "span" else jnp.sum(weights_BxM, axis=1)
  loss = Mean(-jnp.sum(log_p_y_B * has_mask_B), jnp.sum(counts_B))

  scores_BxK, logits_BxKxMxV, log_norms_BxKxM, log_probs_BxKxM, log_p_y_B = jax.lax.stop_gradient(
    (scores_BxK, logits_BxKxMxV, log_norms_BxKxM, log_probs_BxKxM, log_p_y_B)
  )
  log_prior_BxK = _retrieval_log_probs(scores_BxK, batch.valid_BxK)
  right_BxM = _right_words(log_prior_BxK, logits_BxKxMxV, log_norms_BxKxM, targets_BxM)
  certain_Bx1 = jnp.zeros_like(log_prior_BxK[:, :1])
  right_by_null_BxM = _right_words(
    certain_Bx1, logits_BxKxMxV[:, :1], log_norms_BxKxM[:, :1], targets_BxM
  )
  by_null = _prediction_metrics(right_by_null_BxM, weights_BxM, has_mask_B)
  return {
    "loss": loss,
    **_prediction_metrics(right_BxM, weights_BxM, has_mask_B),
    "null_span_accuracy": by_null["span_accuracy"],
    **_utility_metrics(log_p_y_B, log_prior_BxK, log_probs_BxKxM, batch, has_mask_B),
    **_retrieval_metrics(scores_BxK, log_prior_BxK, batch, has_mask_B),
  }


def _retrieval_log_probs(scores_BxK, valid_BxK):
  return jax.nn.log_softmax(jnp.where(valid_BxK, scores_BxK, _LOWEST))


def _at_targets(values_BxKxMxV, targets_BxM):
  # A comparison under a sum fuses; a gather would have a scatter as its gradient, and would collect
  # a vocabulary that is sharded over devices.
  words_V = jnp.arange(values_BxKxMxV.shape[-1])
  hit_Bx1xMxV = targets_BxM[:, None, :, None] == words_V[None, None, None, :]
  return jnp.sum(jnp.where(hit_Bx1xMxV, values_BxKxMxV, 0.0), axis=-1)


def _right_words(log_prior_BxK, logits_BxKxMxV, log_norms_BxKxM, targets_BxM):
  """Returns `[B, M]`, True where the target is more likely than every other word."""
  log_weights_BxKxM = log_prior_BxK[..., None] - log_norms_BxKxM
  # Passage by passage, because XLA on CPU is ten times slower at reducing over the second axis.
  probs_BxMxV = jnp.asarray(
    sum(
      jnp.exp(logits_BxKxMxV[:, k] + log_weights_BxKxM[:, k, :, None])
      for k in range(logits_BxKxMxV.shape[1])
    )
  )
  target_probs_BxM = _at_targets(probs_BxMxV[:, None], targets_BxM)[:, 0]
  return jnp.sum(probs_BxMxV >= target_probs_BxM[..., None], axis=-1) == 1


def _prediction_metrics(right_BxM, weights_BxM, has_mask_B):
  all_right_B = jnp.all(right_BxM | (weights_BxM == 0), axis=1)
  return {
    "masked_token_accuracy": Mean.of(right_BxM, weights_BxM),
    "span_accuracy": Mean.of(all_right_B, has_mask_B),
  }


def _utility_metrics(log_p_y_B, log_prior_BxK, log_probs_BxKxM, batch, has_mask_B):
  weights_BxM = batch.queries.mlm_weights_BxM
  log_p_y_BxK = jnp.einsum("BKM,BM->BK", log_probs_BxKxM, weights_BxM)
  gain_B = (log_p_y_B - log_p_y_BxK[:, 0]) * has_mask_B
  helps_BxK = (log_p_y_BxK > log_p_y_BxK[:, :1]) & batch.valid_BxK
  posterior_BxK = jax.nn.softmax(log_prior_BxK + log_p_y_BxK)
  proposed_BxK = jnp.isneginf(batch.stale_scores_BxK)
  return {
    "retrieval_utility": Mean(jnp.sum(gain_B), jnp.sum(weights_BxM)),
    "positive_utility_share": Mean.of(jnp.any(helps_BxK, axis=1), has_mask_B),
    "proposed_mass": Mean.of(jnp.sum(posterior_BxK * proposed_BxK, axis=1), has_mask_B),
  }


def _retrieval_metrics(scores_BxK, log_prior_BxK, batch, has_mask_B):
  prior_BxK = jnp.exp(log_prior_BxK)
  stale_BxR, found_BxR = batch.stale_scores_BxK[:, 1:], batch.valid_BxK[:, 1:]
  found_BxR &= jnp.isfinite(stale_BxR)
  stale_BxR = jnp.where(found_BxR, stale_BxR, 0.0)
  correlation_B, defined_B = _rank_correlation(stale_BxR, scores_BxK[:, 1:], found_BxR)
  return {
    "null_mass": Mean.of(prior_BxK[:, 0], has_mask_B),
    "retrieval_entropy": Mean.of(-jnp.sum(prior_BxK * log_prior_BxK, axis=1), has_mask_B),
    "stale_rank_correlation": Mean.of(correlation_B, defined_B * has_mask_B),
  }


def _rank_correlation(first_BxK, second_BxK, valid_BxK):
  """Returns Spearman's correlation `[B]`, and 1 where it is defined (neither side is all ties)."""
  weights_BxK = valid_BxK.astype(jnp.float32)
  count_Bx1 = jnp.maximum(jnp.sum(weights_BxK, axis=1, keepdims=True), 1.0)

  def centred_ranks(values_BxK):
    # Twice the rank, averaged over ties: the number of lower values minus that of higher ones.
    order_BxKxK = jnp.sign(values_BxK[:, :, None] - values_BxK[:, None, :])
    ranks_BxK = jnp.sum(order_BxKxK * weights_BxK[:, None, :], axis=2)
    return (ranks_BxK - jnp.sum(ranks_BxK * weights_BxK, axis=1, keepdims=True) / count_Bx1) * (
      weights_BxK
    )

  first_BxK, second_BxK = centred_ranks(first_BxK), centred_ranks(second_BxK)
  product_B = jnp.sum(first_BxK * second_BxK, axis=1)
  square_B = jnp.sum(first_BxK**2, axis=1) * jnp.sum(second_BxK**2, axis=1)
  defined_B = square_B > 0
  correlation_B = product_B * jax.lax.rsqrt(jnp.where(defined_B, square_B, 1.0))
  return correlation_B, defined_B.astype(jnp.float32)
