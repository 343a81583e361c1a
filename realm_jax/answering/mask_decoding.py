"""Decodes the model's outputs: which span fills the mask, and with what probability.

Under the span model p(y|x) = Σ_z p(z|x) Π_m p(y_m|z,x), the most likely span of several wordpieces
cannot be found mask by mask. The candidates are the best span under each passage alone, and the
best wordpieces mask by mask under all passages; every candidate is then scored with all passages.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices.datatypes import Array


@flax.struct.dataclass
class Reading:
  """Candidate answers of a batch, best first.

  Attributes:
    answers_BxCxM: Wordpieces of each candidate.
    log_probs_BxC: log p(y|x).
    log_probs_BxCxK: log p(y|z,x) with each passage.
    retrieval_log_probs_BxK: log p(z|x).
  """

  answers_BxCxM: Array
  log_probs_BxC: Array
  log_probs_BxCxK: Array
  retrieval_log_probs_BxK: Array


def read(
  scores_BxK: jax.Array,
  logits_BxKxMxV: jax.Array,
  weights_BxM: jax.Array,
  *,
  valid_BxK: jax.Array,
  alternatives: int = 1,
  targets_BxM: jax.Array | None = None,
  words_V: jax.Array | np.ndarray | None = None,
) -> Reading:
  """Returns the candidates of each query, best first; a pure function for the caller to jit.

  Args:
    scores_BxK: Fresh retrieval scores.
    logits_BxKxMxV: Masked-LM logits with each passage.
    weights_BxM: 1 for a real mask, 0 for padding.
    valid_BxK: False for empty slots.
    alternatives: Words considered at each mask, replacing the best word of one mask at a time. With
      a single mask, the best `alternatives` answers are exact.
    targets_BxM: A further answer to score.
    words_V: Whether a wordpiece may be in an answer, other than the targets; None allows all.
  """
  lowest = jnp.finfo(jnp.float32).min
  log_prior_BxK = jax.nn.log_softmax(jnp.where(valid_BxK, scores_BxK, lowest))
  log_probs_BxKxMxV = jax.nn.log_softmax(logits_BxKxMxV)
  together_BxMxV = jax.nn.logsumexp(log_probs_BxKxMxV + log_prior_BxK[:, :, None, None], axis=1)
  barred_1x1x1xV = 0.0 if words_V is None else jnp.where(words_V, 0, lowest)[None, None, None]
  candidates_BxCxM = jnp.concatenate(
    [
      _spans(log_probs_BxKxMxV + barred_1x1x1xV, alternatives),
      _spans(together_BxMxV[:, None] + barred_1x1x1xV, alternatives),
      *([] if targets_BxM is None else [targets_BxM[:, None]]),
    ],
    axis=1,
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


def _spans(log_probs_BxIxMxV: jax.Array, alternatives: int) -> jax.Array:
  """Returns `[B, C, M]`: the best span of each source, and its variants in one word."""
  if alternatives == 1:
    return jnp.argmax(log_probs_BxIxMxV, -1)
  batch, sources, masks, _ = log_probs_BxIxMxV.shape
  # A barrier, because XLA on CPU sorts the whole vocabulary when it sees the result sliced. Only
  # around the words: around both results it cannot be compiled for several devices.
  words_BxIxMxA = jax.lax.optimization_barrier(jax.lax.top_k(log_probs_BxIxMxV, alternatives)[1])
  best_BxIx1x1xM = words_BxIxMxA[:, :, None, None, :, 0]
  others_BxIx1xAxM = words_BxIxMxA[..., 1:].transpose(0, 1, 3, 2)[:, :, None]
  changed_1x1xMx1xM = jnp.eye(masks, dtype=bool)[None, None, :, None, :]
  varied = jnp.where(changed_1x1xMx1xM, others_BxIx1xAxM, best_BxIx1x1xM)
  return jnp.concatenate(
    [words_BxIxMxA[..., 0], varied.reshape(batch, sources * masks * (alternatives - 1), masks)],
    axis=1,
  )
