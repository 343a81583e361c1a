import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.inference.span_reading import best_spans
from realm_jax.objectives.open_qa import joint_logits

LOWEST = np.finfo(np.float32).min


def test_probabilities_are_those_of_brute_force():
  random = np.random.default_rng(0)
  logits_BxKxTxW = random.normal(size=(2, 3, 4, 2)).astype(np.float32)
  logits_BxKxTxW[:, :, 3, 1] = logits_BxKxTxW[:, :, 0] = LOWEST
  scores_BxK = random.normal(size=(2, 3)).astype(np.float32)
  valid_BxK = np.array([[True] * 3, [True, True, False]])
  masked_BxK = np.where(valid_BxK, scores_BxK, LOWEST)
  reading = best_spans(
    joint_logits(jnp.asarray(masked_BxK), jnp.asarray(logits_BxKxTxW)),
    jnp.asarray(logits_BxKxTxW),
    jnp.asarray(scores_BxK),
    valid_BxK=jnp.asarray(valid_BxK),
    num_spans=30,
  )
  reading = jax.tree.map(np.asarray, reading)
  for b in range(2):
    spans = {
      (k, t, t + w): float(logits_BxKxTxW[b, k, t, w])
      for k, t, w in np.ndindex(3, 4, 2)
      if valid_BxK[b, k] and logits_BxKxTxW[b, k, t, w] > LOWEST
    }
    mass = sum(np.exp(logit + scores_BxK[b, k]) for (k, _, _), logit in spans.items())
    probs = {s: np.exp(logit + scores_BxK[b, s[0]]) / mass for s, logit in spans.items()}
    real = reading.log_probs_BxC[b] > -1e30
    found = list(zip(reading.slots_BxC[b], reading.starts_BxC[b], reading.ends_BxC[b], strict=True))
    assert real.sum() == len(spans) == (15 if b == 0 else 10)
    assert found[: len(spans)] == sorted(spans, key=probs.get, reverse=True)
    for i, span in enumerate(found[: len(spans)]):
      assert np.exp(reading.log_probs_BxC[b, i]) == pytest.approx(probs[span], rel=1e-4)
      alone = sum(np.exp(logit) for (k, _, _), logit in spans.items() if k == span[0])
      within = np.exp(reading.reader_log_probs_BxC[b, i])
      assert within == pytest.approx(np.exp(spans[span]) / alone, rel=1e-4)
    prior_K = np.exp(scores_BxK[b]) * valid_BxK[b]
    np.testing.assert_allclose(
      np.exp(reading.retrieval_log_probs_BxK[b]), prior_K / prior_K.sum(), rtol=1e-4, atol=1e-9
    )
