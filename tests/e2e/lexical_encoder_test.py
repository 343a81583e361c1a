"""A lexical encoder needs no training to retrieve, and learns with REALM from the first step."""

import dataclasses

import jax
import numpy as np
import pytest

from realm_jax import main
from realm_jax.answering.open_answerer import question_search
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import Sources, open_sources
from realm_jax.devices import partitioning
from realm_jax.models.lexical_encoder import LexicalEncoderConfig

pytestmark = pytest.mark.timeout(600)
ENCODER = LexicalEncoderConfig(vocab_size=1024, projection_size=512, candidates=50)
GIN = """
from __gin__ import dynamic_registration
from realm_jax.models import lexical_encoder
from realm_jax.training import plain_training
plain_training.ContrastiveTraining.dual_encoder = @lexical_encoder.LexicalEncoderConfig()
lexical_encoder.LexicalEncoderConfig.vocab_size = 1024
lexical_encoder.LexicalEncoderConfig.projection_size = 512
lexical_encoder.LexicalEncoderConfig.candidates = 50
"""
QUESTIONS = ["the currency of Japan", "which language do people in Norway speak", "?! ..."]


@pytest.fixture(scope="module")
def sources(world):
  """An index of a retriever that was not trained."""
  (world / "lexical.gin").write_text(GIN)
  run, index, passages = (str(world / name) for name in ("lexical", "lexical_index", "passages"))
  flags = [f"--gin_file={world}/lexical.gin", f"--passages={passages}"]
  sizes = ["--num_steps=0", "--query_length=32", "--passage_length=32"]
  assert main.main(["train_retriever", f"--workdir={run}", *flags, *sizes]) == 0
  assert (
    main.main(["build_index", f"--checkpoints={run}/checkpoints", f"--index={index}", *flags]) == 0
  )
  return Sources(checkpoints=f"{run}/checkpoints", passages=passages, index=index)


def test_the_best_of_its_candidates_are_the_best_of_all(sources):
  search = question_search(open_sources(sources))
  found = search.retrieve(QUESTIONS, k=5)
  size = len(search.rescoring.store)
  ranks_all = dataclasses.replace(search.rescoring, num_candidates=size)
  exact = dataclasses.replace(search, rescoring=ranks_all).retrieve(QUESTIONS, k=5)
  np.testing.assert_allclose(found.scores_BxK, exact.scores_BxK, rtol=1e-5)
  assert (exact.scores_BxK[:2, 0] > 1).all()
  assert (exact.scores_BxK[2] == 0).all(), "what no passage has scores nothing"


def test_realm_learns_its_weights(world, start, sources):
  start(
    "realm_of_words",
    num_steps=2,
    dual_encoder=ENCODER,
    index=str(world / "lexical_index"),
    other_runs="accept",
  )
  saved = saved_models.load(str(world / "realm_of_words" / "checkpoints"))
  assert saved.description.dual_encoder == ENCODER
  mesh = partitioning.make_mesh()
  before, after = (
    saved_models.load(where, step=step).retriever(mesh)[1]["dual_encoder"]
    for where, step in ((sources.checkpoints, 0), (str(saved.path.parent), 2))
  )
  for name, leaf in before.items():
    same = jax.tree.map(np.array_equal, leaf, after[name])
    assert all(same.values()) != (name == "log_factors"), name
