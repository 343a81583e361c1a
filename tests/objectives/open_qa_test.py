"""The objective against brute force over every passage and span, one question at a time."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices import datatypes
from realm_jax.objectives.open_qa import open_qa

LOWEST = float(jnp.finfo(jnp.float32).min)


def make_batch(seed, *, questions=5, beam=7, read=3, length=6, widths=3, missing=0):
  random = np.random.default_rng(seed)
  ids_BxR = random.integers(0, 50, (questions, beam)).astype(np.int32)
  if missing:
    ids_BxR[:, -missing:] = datatypes.MISSING_PASSAGE_ID
  zeros = np.zeros((questions, read, length), np.int32)
  return datatypes.RetrievedQuestions(
    query=None,
    weights_B=np.ones(questions, np.float32),
    question_index_B=np.arange(questions, dtype=np.int32),
    passage_ids_BxR=ids_BxR,
    embeddings_BxRxE=None,
    has_answer_BxR=random.random((questions, beam)) < 0.3,
    joint=datatypes.Tokens(zeros, zeros > 0, zeros),
    gold_BxKxTxW=random.random((questions, read, length, widths)) < 0.1,
  )


def make_scores(seed, batch, scale=2.0):
  random = np.random.default_rng(seed)
  logits_BxKxTxW = random.normal(size=batch.gold_BxKxTxW.shape).astype(np.float32) * scale
  # The first wordpieces are the question's; a span must end within the passage.
  length, widths = logits_BxKxTxW.shape[2:]
  for start in range(length):
    for width in range(widths):
      if start < 2 or start + width >= length:
        logits_BxKxTxW[:, :, start, width] = LOWEST
  scores_BxR = random.normal(size=batch.passage_ids_BxR.shape).astype(np.float32) * scale
  return scores_BxR, logits_BxKxTxW


def brute_force(scores_BxR, logits_BxKxTxW, batch):
  """The loss of every question by loops over passages and spans, in float64."""
  losses, right = [], []
  for b, ids_R in enumerate(batch.passage_ids_BxR):
    beam = [r for r in range(len(ids_R)) if ids_R[r] >= 0]
    mass = sum(math.exp(scores_BxR[b, r]) for r in beam)
    hits = sum(math.exp(scores_BxR[b, r]) for r in beam if batch.has_answer_BxR[b, r])
    loss = -math.log(hits / mass) if hits else 0.0
    spans = {}
    for k in range(logits_BxKxTxW.shape[1]):
      for t, w in np.ndindex(*logits_BxKxTxW.shape[2:]):
        if ids_R[k] >= 0 and logits_BxKxTxW[b, k, t, w] > LOWEST:
          spans[k, t, w] = float(logits_BxKxTxW[b, k, t, w]) + float(scores_BxR[b, k])
    gold = [span for span in spans if batch.gold_BxKxTxW[(b, *span)]]
    if gold:
      mass = sum(math.exp(logit) for logit in spans.values())
      loss -= math.log(sum(math.exp(spans[span]) for span in gold) / mass)
    losses.append(loss)
    right.append(max(spans, key=spans.get) in gold)
  return np.array(losses), np.array(right)


@pytest.fixture
def near(float_tolerance):
  """`near(x)`: sums over 7 passages, over 54 spans of those read, and over 5 questions."""
  atol = float_tolerance(depth=7 + 54 + 5, scale=8)
  return lambda value: pytest.approx(float(value), rel=0, abs=atol)


@jax.jit
def mean_loss(scores_BxR, logits_BxKxTxW, batch):
  return open_qa(scores_BxR, logits_BxKxTxW, batch)["loss"].value


@pytest.mark.parametrize("missing", [0, 5])
@pytest.mark.parametrize("seed", range(2))
def test_agrees_with_brute_force(seed, missing, near):
  batch = make_batch(seed, missing=missing)
  scores_BxR, logits_BxKxTxW = make_scores(seed + 10, batch)
  losses_B, right_B = brute_force(scores_BxR, logits_BxKxTxW, batch)
  metrics = jax.jit(open_qa)(scores_BxR, logits_BxKxTxW, batch)
  assert float(metrics["loss"].value) == near(losses_B.mean())
  assert float(metrics["span_exact_match"].value) == near(right_B.mean())
  assert losses_B.min() == 0 or losses_B.min() > 0.01


def test_padding_changes_nothing(near):
  batch = make_batch(5)
  scores_BxR, logits_BxKxTxW = make_scores(6, batch)
  whole = mean_loss(scores_BxR[:3], logits_BxKxTxW[:3], jax.tree.map(lambda x: x[:3], batch))
  weighted = batch.replace(weights_B=np.array([1, 1, 1, 0, 0], np.float32))
  assert float(mean_loss(scores_BxR, logits_BxKxTxW, weighted)) == near(whole)


def test_no_answer_anywhere_costs_nothing_is_counted_and_moves_nothing():
  batch = make_batch(7, questions=2)
  batch = batch.replace(
    has_answer_BxR=np.zeros_like(batch.has_answer_BxR),
    gold_BxKxTxW=np.zeros_like(batch.gold_BxKxTxW),
  )
  scores_BxR, logits_BxKxTxW = make_scores(8, batch)
  gradients = jax.grad(mean_loss, argnums=(0, 1))(scores_BxR, logits_BxKxTxW, batch)
  metrics = jax.jit(open_qa)(scores_BxR, logits_BxKxTxW, batch)
  assert float(metrics["loss"].value) == 0
  assert float(metrics["without_answer"].value) == 1
  for gradient in gradients:
    np.testing.assert_array_equal(gradient, 0)


def test_gradients_stay_finite_with_slots_empty_and_answers_outside_of_spans():
  batch = make_batch(9, missing=5)
  batch.gold_BxKxTxW[:, :, 0, 0] = True  # no span there
  scores_BxR, logits_BxKxTxW = make_scores(10, batch, scale=30.0)
  gradients = jax.grad(mean_loss, argnums=(0, 1))(scores_BxR, logits_BxKxTxW, batch)
  for gradient in gradients:
    assert np.isfinite(gradient).all()
  np.testing.assert_array_equal(gradients[0][:, 2:], 0)
