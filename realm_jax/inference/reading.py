"""Reads predictions off the model's outputs: which span fills the mask, and with what probability.

Under the span model p(y|x) = Σ_z p(z|x) Π_m p(y_m|z,x) the likeliest span of several wordpieces
cannot be found word by word. Candidates are what each passage alone would say and what the passages
say together word by word; every candidate is then scored with all passages.
"""

import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.datatypes import Array


@flax.struct.dataclass
class Reading:
  """Candidate answers of a batch, best first.

  Attributes:
    answers_BxCxM: wordpieces of each candidate.
    log_probs_BxC: log p(y|x).
    log_probs_BxCxK: log p(y|z,x) with each passage.
    retrieval_log_probs_BxK: log p(z|x).
  """

  answers_BxCxM: Array
  log_probs_BxC: Array
  log_probs_BxCxK: Array
  retrieval_log_probs_BxK: Array


def read(
  scores_BxK: jax.Array, logits_BxKxMxV: jax.Array, weights_BxM: jax.Array, *, valid_BxK: jax.Array
) -> Reading:
  """Returns the candidates of each query, best first; pure, to be jitted by the caller."""
  lowest = jnp.finfo(jnp.float32).min
  log_prior_BxK = jax.nn.log_softmax(jnp.where(valid_BxK, scores_BxK, lowest))
  log_probs_BxKxMxV = jax.nn.log_softmax(logits_BxKxMxV)
  together_BxMxV = jax.nn.logsumexp(log_probs_BxKxMxV + log_prior_BxK[:, :, None, None], axis=1)
  candidates_BxCxM = jnp.concatenate(
    [jnp.argmax(log_probs_BxKxMxV, -1), jnp.argmax(together_BxMxV, -1)[:, None]], axis=1
  )
  # [B, K, M, V] at [B, C, M] for every k gives [B, C, K].
  picked_BxKxMxC = jnp.take_along_axis(
    log_probs_BxKxMxV, candidates_BxCxM.transpose(0, 2, 1)[:, None], axis=-1
  )
  log_probs_BxCxK = jnp.einsum("BKMC,BM->BCK", picked_BxKxMxC, weights_BxM)
  log_probs_BxC = jax.nn.logsumexp(log_probs_BxCxK + log_prior_BxK[:, None], axis=-1)
  order_BxC = jnp.argsort(-log_probs_BxC, axis=1)
  return Reading(
    answers_BxCxM=jnp.take_along_axis(candidates_BxCxM, order_BxC[..., None], 1),
    log_probs_BxC=jnp.take_along_axis(log_probs_BxC, order_BxC, 1),
    log_probs_BxCxK=jnp.take_along_axis(log_probs_BxCxK, order_BxC[..., None], 1),
    retrieval_log_probs_BxK=log_prior_BxK,
  )
