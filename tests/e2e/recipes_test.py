"""The first steps of each written-down pre-training, at tiny size: none rings an alarm."""

import dataclasses
import functools

import gin
import jax
import pytest

from realm_jax import partitioning
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.jobs.training.train_retriever import train_retriever
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.example_sources import PairData
from realm_jax.runs.pretraining import ModelConfig
from realm_jax.runs.training_config import MeshConfig, RunConfig
from realm_jax.runs.training_run import WarmStart
from realm_jax.training import alarms
from tests.configurations import changed
from tests.e2e.conftest import PRETRAINING
from tests.experiments import EXPERIMENTS, begins, head_of, jobs_of, settings_of

pytestmark = pytest.mark.timeout(600)
PARTS = ("dual_encoder", "knowledge_augmented_encoder")
STEPS = 30
TINY = dataclasses.replace(PRETRAINING.model.dual_encoder.bert, hidden_size=32, mlp_size=64)
# The mean of one layer matches words from its first steps on; [CLS] would need many more.
DUAL_ENCODER = DualEncoderConfig(bert=TINY, projection_size=32, pooling="mean")
BEGINNING = changed(
  PRETRAINING, model=ModelConfig(dual_encoder=DUAL_ENCODER, knowledge_augmented_encoder=TINY)
)


def recipes():
  """Returns pre-training and beginnings of each recipe that its owner waits for."""
  found = {}
  for file in EXPERIMENTS:
    for name, job in jobs_of(file).items():
      if name in ("pretrain", "launch_local") and file.stem != "tiny":  # which learns nothing
        values = settings_of(job, str(file))
        parts = [part for part in PARTS if begins(part, values, head_of(file))]
        found[file.stem] = (values["pretraining"], parts)
      gin.clear_config()
  return found


def at_tiny_size(given):
  """Returns a training with everything but its sizes, and its one generation, as it was."""
  dual_encoder = dataclasses.replace(DUAL_ENCODER, temperature=given.model.dual_encoder.temperature)
  return dataclasses.replace(
    given,
    run=RunConfig(num_steps=STEPS, log_every=2, checkpoint_every=1000),
    mesh=MeshConfig(),
    # The examples of the world are prepared.
    data=dataclasses.replace(PRETRAINING.data, batch_size=16),
    model=ModelConfig(dual_encoder=dual_encoder, knowledge_augmented_encoder=TINY),
    retrieval=dataclasses.replace(
      PRETRAINING.retrieval,
      null_passage=given.retrieval.null_passage,
      trivial_passage=given.retrieval.trivial_passage,
    ),
    optimizer=dataclasses.replace(given.optimizer, warmup_steps=None),
    rehearsal=dataclasses.replace(given.rehearsal, num_pairs=min(8, given.rehearsal.num_pairs)),
    generation=0,
  )


def distinct():
  """Returns the trainings that recipes come to at tiny size, and the recipes of each."""
  names = {}
  for name, (given, parts) in recipes().items():
    names.setdefault((at_tiny_size(given), tuple(parts)), []).append(name)
  return {"+".join(recipes): training for training, recipes in names.items()}


TRAININGS = distinct()


@pytest.fixture(scope="module", autouse=True)
def one_device():
  """How a batch is split rings no alarm, and programs for one device compile faster."""
  make_mesh = functools.partial(partitioning.make_mesh, devices=jax.devices()[:1])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(partitioning, "make_mesh", make_mesh)
    yield


@pytest.fixture(scope="module")
def trained(world):
  """A dual encoder of the inverse cloze task and a random reader, with their index."""
  ict = ContrastiveTraining(
    run=RunConfig(num_steps=150, checkpoint_every=1000, log_every=50),
    data=PairData(batch_size=64, query_length=32, passage_length=32),
    dual_encoder=DUAL_ENCODER,
    optimizer=dataclasses.replace(PRETRAINING.optimizer, learning_rate=2e-3),
  )
  train_retriever(workdir=str(world / "ict"), passages=str(world / "passages"), contrastive=ict)
  pretrain(
    workdir=str(world / "begun"),
    corpus=str(world / "examples"),
    passages=str(world / "passages"),
    index=str(world / "index_begun"),
    pretraining=changed(BEGINNING, num_steps=0),
    retriever_checkpoints=str(world / "ict" / "checkpoints"),
  )
  build_index(
    checkpoints=str(world / "begun" / "checkpoints"),
    passages=str(world / "passages"),
    index=str(world / "index_begun"),
  )
  return world / "begun" / "checkpoints"


@pytest.mark.parametrize("name", TRAININGS)
def test_the_first_steps_ring_no_alarm(name, world, trained, rows, mined_pairs):
  pretraining, parts = TRAININGS[name]
  pretrain(
    workdir=str(world / f"recipe_{name}"),
    corpus=str(world / "examples"),
    passages=str(world / "passages"),
    index=str(world / "index_begun"),
    pretraining=pretraining,
    warm_starts=[WarmStart(str(trained), [(part, part) for part in parts])],
    **(mined_pairs if pretraining.rehearsal.num_pairs else {}),
  )
  written = rows(f"recipe_{name}")
  assert written[-1]["step"] == STEPS
  assert not alarms.find(written, settings=pretraining.alarm_settings)
