"""A masked language model learns a corpus, and a dual encoder begins with it."""

import json

import jax
import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.devices import partitioning
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.training.pretrain_mlm import pretrain_mlm
from realm_jax.jobs.training.train_retriever import train_retriever
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.training.recipes.examples import MaskedQueryData, PairData
from realm_jax.training.recipes.plain_training import ContrastiveTraining, MaskedLmTraining
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.training_config import RunConfig
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=256, hidden_size=16, mlp_size=32, max_length=24)


@pytest.mark.slow
def test_it_learns_and_a_dual_encoder_begins_with_it(tmp_path):
  documents, vocabulary, passages = (
    str(tmp_path / name) for name in ("documents.jsonl", "vocabulary", "passages")
  )
  with open(documents, "w", encoding="utf-8") as file:
    for i in range(40):
      # Longer than a query: other words of it are read each time.
      text = f"{i} is one more than {i - 1}, and {i + 1} is one more than {i}. " * 3
      file.write(json.dumps({"id": str(i), "title": str(i), "text": text}) + "\n")
  prepare_corpus(
    input=documents,
    output=passages,
    vocabulary=vocabulary,
    learning=VocabularyConfig(vocab_size=256),
    num_shards=1,
  )
  pretrain_mlm(
    workdir=str(tmp_path / "mlm"),
    passages=passages,
    masked_lm=MaskedLmTraining(
      run=RunConfig(num_steps=60, log_every=1),
      optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0, schedule="constant"),
      data=MaskedQueryData(batch_size=16, query_length=24, max_masks=4, mask="passage_tokens"),
      bert=BERT,
    ),
  )
  with open(tmp_path / "mlm" / "metrics.jsonl", encoding="utf-8") as file:
    losses = [json.loads(line)["loss/total"] for line in file]
  assert np.mean(losses[-10:]) < 0.7 * losses[0]

  bert = "dual_encoder/tower/bert=knowledge_augmented_encoder/bert"
  train_retriever(
    workdir=str(tmp_path / "begun"),
    passages=passages,
    start=[f"{tmp_path / 'mlm' / 'checkpoints'}:{bert}"],
    contrastive=ContrastiveTraining(
      run=RunConfig(num_steps=0),
      data=PairData(batch_size=8, query_length=24, passage_length=24),
      dual_encoder=DualEncoderConfig(bert=BERT, projection_size=8),
    ),
  )
  _, params = saved_models.load(str(tmp_path / "begun" / "checkpoints")).retriever(
    partitioning.make_mesh()
  )
  begun = params["dual_encoder"]["tower"]["bert"]
  learned = orbax_files.restore_params(
    orbax_files.resolve(tmp_path / "mlm" / "checkpoints"),
    {"knowledge_augmented_encoder": {"bert": jax.tree.map(_shape, begun)}},
  )
  jax.tree.map(np.testing.assert_array_equal, begun, learned["knowledge_augmented_encoder"]["bert"])


def _shape(leaf):
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
