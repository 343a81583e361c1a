import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.models.encoder import in_buckets


def encode(weights_V, tokens, scale_Fx1):
  """Sums weights over each sequence; also returns the width of the sequences."""
  assert tokens.shape[-1] in (3, 6, 9)
  total_F = jnp.sum(jnp.where(tokens.mask, weights_V[tokens.ids], 0.0), axis=1)
  return total_F[:, None] * scale_Fx1


def test_rows_keep_their_places_and_their_gradients(make_tokens):
  random = np.random.default_rng(0)
  tokens = make_tokens(random, 7, 9, vocab_size=20)
  lengths = np.array([9, 2, 6, 3, 5, 3, 2])
  mask = np.arange(9) < lengths[:, None]
  tokens = tokens.replace(mask=mask)
  weights_V = random.normal(size=20).astype(np.float32)
  scale_Fx1 = random.normal(size=(7, 1)).astype(np.float32)

  def loss(weights_V, scale_Fx1, buckets):
    outputs_Fx1 = in_buckets(
      lambda *rows: encode(weights_V, *rows), tokens, scale_Fx1, buckets=buckets
    )
    return jnp.sum(outputs_Fx1**3), outputs_Fx1

  results = [
    jax.value_and_grad(loss, (0, 1), has_aux=True)(weights_V, scale_Fx1, buckets)
    for buckets in ((), ((4, 3), (2, 6), (1, 9)))
  ]
  # Sums of up to nine numbers below 4, cubed and multiplied.
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *results)
