import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax.models import dual_encoder, knowledge_augmented_encoder, realm
from tests.configurations import tiny_bert

BERT = tiny_bert()
MODEL = realm.RealmPretrainingModel(
  dual_encoder.DualEncoderConfig(bert=BERT, projection_size=4), BERT
)


@pytest.fixture(scope="module")
def batch(make_retrieved_batch):
  return make_retrieved_batch(0, queries=2, passages=3, masks=4, vocab_size=11)


@pytest.fixture(scope="module")
def variables(batch):
  init = functools.partial(MODEL.init, deterministic=True)
  return nn.unbox(jax.jit(init)(jax.random.key(0), batch))


@functools.partial(jax.jit, static_argnames=("module", "method"))
def apply(module, params, *inputs, method=None):
  return module.apply({"params": params}, *inputs, deterministic=True, method=method)


@pytest.fixture
def atol(float_tolerance, encoder_depth):
  """For scores and logits: sums over hidden vectors, whose norm is below the root of their size."""
  return float_tolerance(depth=encoder_depth(BERT) + 3 * BERT.hidden_size, scale=8)


def test_every_passage_is_scored_and_read_for_itself(variables, batch, atol):
  outputs = apply(MODEL, variables["params"], batch)
  encoder = knowledge_augmented_encoder.KnowledgeAugmentedEncoder(BERT)
  retriever = dual_encoder.DualEncoder(MODEL.dual_encoder_config)
  for k in range(3):
    logits_BxMxV = apply(
      encoder,
      variables["params"]["knowledge_augmented_encoder"],
      batch.joint[:, k],
      batch.queries.mlm_positions_BxM,
    )
    np.testing.assert_allclose(outputs.logits_BxKxMxV[:, k], logits_BxMxV, atol=atol)
    scores_BxK = apply(
      retriever,
      variables["params"]["dual_encoder"],
      batch.queries.query,
      batch.passage[:, np.array([0, k])],
    )
    np.testing.assert_allclose(outputs.scores_BxK[:, [0, k]], scores_BxK, atol=atol)


def test_passages_embedded_before_score_the_same(variables, batch, atol):
  passage_BxKxE = apply(
    dual_encoder.DualEncoder(MODEL.dual_encoder_config),
    variables["params"]["dual_encoder"],
    batch.passage.reshape(6, -1),
    method="encode_passage",
  ).reshape(2, 3, 4)
  scores_of = jax.jit(functools.partial(MODEL.apply, deterministic=True))
  scores_BxK = {
    scale: scores_of(variables, batch, passage_BxKxE=scale * passage_BxKxE).scores_BxK
    for scale in (1, 2)
  }
  outputs = apply(MODEL, variables["params"], batch)
  np.testing.assert_allclose(scores_BxK[1], outputs.scores_BxK, atol=atol)
  np.testing.assert_allclose(scores_BxK[2], 2 * outputs.scores_BxK, atol=2 * atol)


def test_a_dual_encoder_that_does_not_learn_keeps_the_scores_of_the_search(variables, batch, atol):
  fresh = apply(MODEL, variables["params"], batch)
  found = batch.replace(stale_scores_BxK=fresh.scores_BxK.at[:, 0].set(0))

  def outputs(params, deterministic=True, key=None):
    rngs = None if key is None else {"dropout": key}
    still = MODEL.clone(dual_encoder_learns=False)
    return still.apply({"params": params}, found, deterministic=deterministic, rngs=rngs)

  still = jax.jit(outputs)(variables["params"])
  for name in ("scores_BxK", "logits_BxKxMxV"):
    np.testing.assert_allclose(getattr(still, name), getattr(fresh, name), atol=atol)
  dropped = jax.jit(functools.partial(outputs, deterministic=False, key=jax.random.key(1)))
  np.testing.assert_allclose(dropped(variables["params"]).scores_BxK, fresh.scores_BxK, atol=atol)
  gradient = jax.jit(jax.grad(lambda params: outputs(params).scores_BxK.sum()))
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient(variables["params"])))


def test_buckets_change_nothing(variables, batch, atol):
  def buckets(tokens, rows):
    lengths = np.sort(tokens.mask.sum(-1).reshape(-1))
    return ((rows, int(lengths[rows - 1])), (len(lengths) - rows, int(lengths[-1])))

  bucketed = batch.replace(
    passage_buckets=buckets(batch.passage[:, 1:], 1), joint_buckets=buckets(batch.joint, 4)
  )
  assert bucketed.passage_buckets[0][1] < batch.passage.shape[-1]
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=atol),
    apply(MODEL, variables["params"], bucketed),
    apply(MODEL, variables["params"], batch),
  )
