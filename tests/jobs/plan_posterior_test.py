"""The cost of a posterior in the plan of a pre-training."""

import jax

from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.jobs.training import plan as plan_module
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.posterior import Bm25Posterior, DualEncoderPosterior
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.machines import ahead_of_time, pretraining_plan
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=64, max_length=16)


def test_a_search_for_unmasked_sentences_has_twice_the_rows(monkeypatch):
  shapes = {}

  def compile_program(name, program, *arguments, repeats):
    shapes[name] = jax.tree.leaves(arguments[1])[0].shape
    return ahead_of_time.CompiledProgram()

  monkeypatch.setattr(pretraining_plan, "compile_program", compile_program)
  for posterior, rows in (
    (None, 8),
    (Bm25Posterior(num_passages=1), 8),
    (DualEncoderPosterior(num_passages=1), 16),
  ):
    pretraining = Pretraining(
      data=MaskedQueryData(batch_size=8, query_length=8, max_masks=2),
      model=ModelConfig(
        dual_encoder=DualEncoderConfig(bert=BERT, projection_size=8),
        knowledge_augmented_encoder=BERT,
      ),
      retrieval=RetrievalConfig(
        num_passages=3, passage_length=8, joint_length=16, posterior=posterior
      ),
    )
    plan_module.plan(
      topology="cpu:8",
      pretraining=pretraining,
      builder=BuilderConfig(searcher=SearcherConfig(kind="device"), tokens_per_batch=256),
      num_passages=10**4,
    )
    assert (shapes["query encoder"][0], shapes["search on the devices"][0]) == (rows, rows)
