"""What a posterior proposes is scored afresh, whether or not the dual encoder learns."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np

from realm_jax.retrieval.posterior import Bm25Posterior
from realm_jax.training.optimizer import OptimizerConfig
from tests.training.pretraining_test import make_pretraining


def test_a_frozen_dual_encoder_scores_what_the_posterior_proposes(make_retrieved_batch):
  made = make_pretraining()
  proposing = dataclasses.replace(made.retrieval, posterior=Bm25Posterior(num_passages=1))
  frozen = dataclasses.replace(
    made, retrieval=proposing, optimizer=OptimizerConfig(frozen_parts=("dual_encoder",))
  )
  batch = make_retrieved_batch(0, queries=8, passages=2, masks=2, vocab_size=32)
  params = nn.unbox(jax.jit(made.init_params)(jax.random.key(0)))

  def gradients(training, batch):
    return jax.jit(functools.partial(training.minimised.gradients, parts=1))(params, batch, None)

  learning, metrics = gradients(made, batch)
  stale_BxK = np.full_like(batch.stale_scores_BxK, -np.inf)
  still, of_frozen = gradients(frozen, batch.replace(stale_scores_BxK=stale_BxK))
  assert of_frozen["loss/total"].value == metrics["loss/total"].value
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(still["dual_encoder"]))
  assert all(np.any(leaf) for leaf in jax.tree.leaves(learning["dual_encoder"]))
  reader = "knowledge_augmented_encoder"
  jax.tree.map(np.testing.assert_array_equal, still[reader], learning[reader])
