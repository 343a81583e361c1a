"""The inverse cloze task: tell the passage that a query was cut from (Lee et al. 2019).

-log softmax of the own passage's score among all passages of the whole batch; under `jax.jit` with
a batch split over devices, those of all devices.
"""

import jax
import jax.numpy as jnp

from realm_jax.datatypes import Mean


def inverse_cloze(
  query_BxE: jax.Array, passage_BxE: jax.Array, weights_B: jax.Array | None = None
) -> dict[str, Mean]:
  """Returns the figures of one batch, means over the queries.

  They are `loss`; `accuracy`, the share of queries whose own passage scores above all others;
  `mean_reciprocal_rank` of the own passage. A tie counts against it, so that embeddings which are
  all alike do not look right.

  Args:
    query_BxE: embeddings of the queries.
    passage_BxE: embeddings of the passages, in the same order.
    weights_B: 1 for a real pair, 0 for padding, which is no negative either; None if all are real.
  """
  if weights_B is None:
    weights_B = jnp.ones(query_BxE.shape[0])
  scores_BxB = jnp.einsum("BE,CE->BC", query_BxE, passage_BxE)
  own_BxB = jnp.eye(len(weights_B), dtype=bool)
  lowest = jnp.finfo(jnp.float32).min
  scores_BxB = jnp.where(own_BxB | (weights_B > 0)[None, :], scores_BxB, lowest)
  own_scores_B = jnp.diagonal(scores_BxB)
  log_probs_B = own_scores_B - jax.nn.logsumexp(scores_BxB, axis=1)
  ranks_B = jnp.sum(scores_BxB >= own_scores_B[:, None], axis=1)

  return {
    "loss": Mean.of(-log_probs_B, weights_B),
    "accuracy": Mean.of(ranks_B == 1, weights_B),
    "mean_reciprocal_rank": Mean.of(1.0 / ranks_B, weights_B),
  }
