"""The example of an own encoder: injected by gin, trained, indexed, fine-tuned and opened again."""

import numpy as np
import pytest

from examples.own_encoder import BagConfig
from realm_jax import main
from realm_jax.answering.open_answerer import question_search
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import Sources, open_sources
from realm_jax.data.question_batches import question_batches
from realm_jax.devices import partitioning
from realm_jax.index import assembly
from realm_jax.jobs.preparation.export_checkpoint import export_checkpoint
from realm_jax.jobs.training.finetune import finetune
from tests.configurations import changed
from tests.e2e.conftest import FINETUNING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
GIN = """
from __gin__ import dynamic_registration
from examples import own_encoder
from realm_jax.training.recipes import plain_training
from realm_jax.training.recipes import pretraining
plain_training.ContrastiveTraining.dual_encoder = @own_encoder.BagConfig()
pretraining.ModelConfig.dual_encoder = @own_encoder.BagConfig()
own_encoder.BagConfig.width = 24
own_encoder.BagConfig.vocab_size = 1024
"""
BAG = BagConfig(width=24, vocab_size=1024)


@pytest.fixture(scope="module")
def realm(world):
  """`realm(job, **flags)` runs a job with the gin file of the example."""
  gin_file = world / "bags.gin"
  gin_file.write_text(GIN)

  def run(job, **flags):
    given = {"gin_file": gin_file, "passages": world / "passages", **flags}
    return main.main([job, *(f"--{name}={value}" for name, value in given.items())])

  return run


@pytest.fixture(scope="module")
def trained(world, realm):
  """Checkpoints of a retriever that was trained with it."""
  settings = {"num_steps": 80, "log_every": 40, "batch_size": 32, "learning_rate": 0.05}
  lengths = {"query_length": 32, "passage_length": 32, "warmup_steps": 0}
  assert realm("train_retriever", workdir=world / "bags", **settings, **lengths) == 0
  return str(world / "bags" / "checkpoints")


@pytest.fixture(scope="module")
def sources(world, realm, trained):
  index = str(world / "index_of_bags")
  assert realm("build_index", checkpoints=trained, index=index) == 0
  return Sources(checkpoints=trained, passages=str(world / "passages"), index=index)


def arrays_of(checkpoints, of):
  saved = saved_models.load(checkpoints)
  return saved.description.dual_encoder, saved.tower(partitioning.make_mesh(), of=of)[1]


def test_it_learns_and_its_checkpoint_names_it(trained, losses):
  first, last = losses("bags").values()
  assert last < 0.7 * first
  for side in ("query", "passage"):
    config, params = arrays_of(trained, side)
    assert config == BAG
    assert list(params) == [f"{side}_words"]


def test_its_index_finds_the_greatest_inner_products(sources):
  opened = open_sources(sources)
  search, question = question_search(opened), "Who discovered it in 1802?"
  found = search.retrieve([question], k=3)
  ((batch, _),) = question_batches(
    [question], tokenizer=search.tokenizer, query_length=32, batch_size=1
  )
  ids = batch.query.ids[0][batch.query.mask[0]]
  query_1xE = search.params["dual_encoder"]["query_words"]["embedding"][ids].mean(axis=0)[None]
  passages_NxE = np.asarray(assembly.load_embeddings(sources.index, 0), np.float32)
  scores_N = np.sort((query_1xE @ passages_NxE.T)[0])[::-1]
  np.testing.assert_allclose(found.scores_BxK[0], scores_N[:3], rtol=1e-4)
  assert opened.manifest.parameters_digest == saved_models.passages_digest(
    BAG, search.params["dual_encoder"]
  )


def test_realm_is_pre_trained_and_fine_tuned_with_it(world, start, sources):
  start(
    "realm_of_bags",
    num_steps=2,
    dual_encoder=BAG,
    start=[sources.checkpoints],
    index=sources.index,
    other_runs="accept",
  )
  begun = str(world / "realm_of_bags" / "checkpoints")
  finetune(
    workdir=str(world / "tuned_bags"),
    questions=str(world / "almanac" / "training_questions.jsonl"),
    passages=sources.passages,
    index=sources.index,
    start=[f"{sources.checkpoints}:dual_encoder", f"{begun}:span_reader"],
    finetuning=changed(FINETUNING, num_steps=2),
  )
  tuned = str(world / "tuned_bags" / "checkpoints")
  for side, moves in {"query": True, "passage": False}.items():
    (_, before), (_, after) = (arrays_of(where, side) for where in (sources.checkpoints, tuned))
    before, after = (params[f"{side}_words"]["embedding"] for params in (before, after))
    assert np.array_equal(before, after) != moves


def test_what_only_berts_encoder_has_is_refused(realm, world, trained, tmp_path, capsys):
  vocabulary = str(world / "vocabulary")
  with pytest.raises(ValueError, match="BagConfig"):
    export_checkpoint(checkpoints=trained, vocabulary=vocabulary, output=str(tmp_path / "out"))
  assert realm("train_retriever", workdir=world / "none", projection_size=8) == 2
  assert "projection_size of contrastive.dual_encoder cannot be set" in capsys.readouterr().err
