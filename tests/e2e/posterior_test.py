"""Training with passages that a posterior proposes, and evaluation without them."""

import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.retrieval.posterior import Bm25Posterior
from realm_jax.training.run.optimizer import OptimizerConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STILL = OptimizerConfig(learning_rate=0.0, warmup_steps=0, schedule="constant")


@pytest.fixture(scope="module")
def common(world):
  return {
    "checkpoint_every": 2,
    "eval_corpus": str(world / "passages"),
    "eval_every": 1,
    "optimizer": STILL,
  }


@pytest.fixture(scope="module")
def unproposed(world, start, common):
  """The directory of a run without a posterior."""
  start("unproposed", num_steps=4, **common)
  return world / "unproposed"


def test_what_the_posterior_proposes_is_read_in_training_alone(
  world, start, losses, rows, common, unproposed
):
  name = "proposed"
  proposing = {**common, "posterior": Bm25Posterior(num_passages=1)}
  start(name, num_steps=4, **proposing)
  start(f"{name}_halves", num_steps=2, **proposing)
  start(f"{name}_halves", num_steps=4, **proposing)
  evaluated = {run: [row["eval/loss"] for row in rows(run)] for run in (name, unproposed.name)}
  assert losses(name) == losses(f"{name}_halves")
  assert evaluated[name] == evaluated[unproposed.name]
  assert losses(name) != losses(unproposed.name)
  assert max(row.get("retrieval/answer_gained_share", 0) for row in rows(name)) > 0
  assert max(row["retrieval/proposed_mass"] for row in rows(name)) > 0
  saved = saved_models.load(world / name / "checkpoints")
  assert saved.description == saved_models.load(unproposed / "checkpoints").description
  with pytest.raises(ValueError, match=r"posterior Bm25Posterior\(num_passages=1\), now None"):
    start(name, num_steps=5)
