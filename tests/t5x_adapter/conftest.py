"""A world of a few hundred facts with a checkpoint of step 0 and its index."""

import contextlib
import functools
import pathlib
import subprocess

import pytest

from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.posterior import Bm25Posterior
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.training_config import RunConfig
from tests.configurations import tiny_bert
from tests.worlds import make_corpora

ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = tiny_bert(
  vocab_size=1024,
  hidden_size=16,
  mlp_size=32,
  max_length=48,
  attention_dropout_rate=0.0,
)
MODEL = {
  "dual_encoder": DualEncoderConfig(bert=BERT, projection_size=8, projection_dropout_rate=0.0),
  "knowledge_augmented_encoder": BERT,
  "retrieval": RetrievalConfig(
    num_passages=3, passage_length=32, joint_length=48, posterior=Bm25Posterior(num_passages=1)
  ),
  "query_length": 32,
  "max_masks": 3,
}
# A run of any length begins alike.
OPTIMIZER = OptimizerConfig(learning_rate=1e-3, warmup_steps=0, schedule="constant")


@pytest.fixture(scope="session")
def alongside():
  """`with alongside(command):` runs a process that must succeed; a failed test does not wait."""
  return _alongside


@contextlib.contextmanager
def _alongside(command):
  with subprocess.Popen(command, cwd=ROOT) as process:
    try:
      yield process
    except BaseException:
      process.kill()
      raise
  assert process.returncode == 0


@pytest.fixture(scope="session")
def model_settings():
  """Keywords that `PretrainingModel` and `pretrain` share, sizes of a few rows."""
  return MODEL


@pytest.fixture(scope="session")
def pretrain_ourselves(world):
  """`pretrain_ourselves(name, num_steps=...)` trains with our own trainer on generation 0."""
  return functools.partial(pretrain_here, world)


@pytest.fixture(scope="session")
def optimizer_settings():
  return OPTIMIZER


@pytest.fixture(scope="session")
def world(tmp_path_factory):
  """A directory with almanac, corpora, a checkpoint of our own trainer and its index."""
  root = tmp_path_factory.mktemp("world")
  make_corpora(root)
  pretrain_here(root, "first", num_steps=0)
  build_index(
    checkpoints=str(root / "first" / "checkpoints"),
    passages=str(root / "passages"),
    index=str(root / "index"),
  )
  return root


def pretrain_here(root, name, *, num_steps, **places):
  """Trains with our own trainer on generation 0."""
  pretrain(
    workdir=str(root / name),
    corpus=str(root / "training"),
    passages=str(root / "passages"),
    index=str(root / "index"),
    pretraining=Pretraining(
      run=RunConfig(num_steps=num_steps, log_every=1),
      optimizer=OPTIMIZER,
      data=MaskedQueryData(
        batch_size=8, query_length=MODEL["query_length"], max_masks=MODEL["max_masks"]
      ),
      model=ModelConfig(
        dual_encoder=MODEL["dual_encoder"],
        knowledge_augmented_encoder=MODEL["knowledge_augmented_encoder"],
      ),
      retrieval=MODEL["retrieval"],
      generation=0,
    ),
    **places,
  )
