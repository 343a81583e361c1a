"""What a pre-training warns of before it begins."""

import pytest

from realm_jax.jobs.training import pretrain
from realm_jax.retrieval.posterior import Bm25Posterior, DualEncoderPosterior
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.pretraining import Pretraining
from realm_jax.training.training_config import RunConfig


@pytest.mark.parametrize(
  ("started", "posterior", "num_steps", "warned"),
  [
    ((), None, 9, True),
    (("dual_encoder",), None, 9, False),
    ((), Bm25Posterior(num_passages=1), 9, False),
    ((), DualEncoderPosterior(num_passages=1), 9, True),
    ((), None, 0, False),
  ],
)
def test_a_dual_encoder_at_random_is_warned_of(started, posterior, num_steps, warned, caplog):
  pretraining = Pretraining(
    run=RunConfig(num_steps=num_steps), retrieval=RetrievalConfig(posterior=posterior)
  )
  with caplog.at_level("WARNING", logger="absl"):
    pretrain._warn_of_what_cannot_learn(pretraining, started)
  assert ("cannot help the reader" in caplog.text) == warned
