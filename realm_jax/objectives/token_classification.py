"""Token classification: -log p of each labelled token's tag, averaged over the labelled tokens."""

import jax
import jax.numpy as jnp


def token_classification(
  logits_BxLxC: jax.Array, labels_BxL: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns the loss and the figures of one batch, float32 scalars.

  The figures: `loss`; `accuracy`, the share of labelled tokens whose tag is the likeliest.

  Args:
    logits_BxLxC: of each tag.
    labels_BxL: 1 + the tag, or 0 where a token has no label: it does not count.
  """
  weights_BxL = (labels_BxL > 0).astype(jnp.float32)
  tags_BxL = jnp.maximum(labels_BxL - 1, 0)
  log_probs_BxLxC = jax.nn.log_softmax(logits_BxLxC.astype(jnp.float32))
  own_BxL = jnp.take_along_axis(log_probs_BxLxC, tags_BxL[..., None], axis=-1)[..., 0]
  right_BxL = jnp.argmax(logits_BxLxC, axis=-1) == tags_BxL
  count = jnp.maximum(jnp.sum(weights_BxL), 1.0)
  loss = -jnp.sum(own_BxL * weights_BxL) / count
  return loss, {"loss": loss, "accuracy": jnp.sum(right_BxL * weights_BxL) / count}
