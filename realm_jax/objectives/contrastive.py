"""Contrastive training: tell the passage of a query from all others of the batch.

-log softmax of the own passage's score among the passages of the whole batch; under `jax.jit` with
a batch split over devices, those of all devices. A query has K passages: its own, and passages that
are known to be wrong. Both are negatives of all other queries.
"""

import jax
import jax.numpy as jnp

from realm_jax.datatypes import Mean


def contrastive(
  query_BxE: jax.Array, passage_BxKxE: jax.Array, compared_BxF: jax.Array
) -> dict[str, Mean]:
  """Returns the figures of one batch, means over the queries.

  They are `loss`; `accuracy`, the share of queries whose own passage scores above all others;
  `mean_reciprocal_rank` of the own passage. A tie counts against it, so that embeddings which are
  all alike do not look right.

  Args:
    query_BxE: Embeddings of the queries.
    passage_BxKxE: Embeddings of their passages, the right one first.
    compared_BxF: Which of the B × K passages a query is compared with, from `compared_passages`; a
      query without its own one is padding.
  """
  passage_FxE = passage_BxKxE.reshape(-1, passage_BxKxE.shape[-1])
  own_BxF = _own(*passage_BxKxE.shape[:2])
  scores_BxF = jnp.einsum("BE,FE->BF", query_BxE, passage_FxE)
  lowest = jnp.finfo(jnp.float32).min
  scores_BxF = jnp.where(own_BxF | compared_BxF, scores_BxF, lowest)
  own_scores_B = jnp.sum(scores_BxF, axis=1, where=own_BxF)
  log_probs_B = own_scores_B - jax.nn.logsumexp(scores_BxF, axis=1)
  ranks_B = jnp.sum(scores_BxF >= own_scores_B[:, None], axis=1)
  weights_B = jnp.any(own_BxF & compared_BxF, axis=1).astype(jnp.float32)
  return {
    "loss": Mean.of(-log_probs_B, weights_B),
    "accuracy": Mean.of(ranks_B == 1, weights_B),
    "mean_reciprocal_rank": Mean.of(1.0 / ranks_B, weights_B),
  }


def compared_passages(real_BxK: jax.Array, uid_BxK: jax.Array, right_BxO: jax.Array) -> jax.Array:
  """Returns which of the B × K passages each query is compared with, `compared_BxF`.

  A passage that is right for a query is none of its negatives, wherever in the batch it stands.

  Args:
    real_BxK: False for empty places.
    uid_BxK: Numbers that identify the passages; 0 if unknown.
    right_BxO: Numbers of other passages that are right for a query; 0 for none.
  """
  uid_1xF = uid_BxK.reshape(1, -1)
  right_BxO = jnp.concatenate([uid_BxK[:, :1], right_BxO], axis=1)
  right_BxF = (uid_1xF != 0) & jnp.any(right_BxO[:, None, :] == uid_1xF[:, :, None], axis=2)
  return real_BxK.reshape(1, -1) & (_own(*uid_BxK.shape) | ~right_BxF)


def _own(num_queries: int, num_passages: int) -> jax.Array:
  """Returns which of the flat passages is the first of each query, `own_BxF`."""
  first_B = num_passages * jnp.arange(num_queries)
  return first_B[:, None] == jnp.arange(num_queries * num_passages)[None, :]
