"""Contrastive training learns from mined pairs."""

import json

import numpy as np

from realm_jax.jobs.preparation.prepare_examples import ExampleSettings, prepare_examples
from realm_jax.jobs.training.train_retriever import train_retriever
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.training.contrastive import ContrastiveTraining
from realm_jax.training.examples import PairData
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.training_config import RunConfig
from tests.configurations import changed


def training(store, **fields):
  bert = BertConfig(
    vocab_size=store.metadata.vocab_size,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    mlp_size=32,
    max_length=32,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    initializer_range=0.2,
  )
  config = ContrastiveTraining(
    run=RunConfig(num_steps=80, log_every=1),
    optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0, schedule="constant"),
    data=PairData(batch_size=16, query_length=16, passage_length=32),
    dual_encoder=DualEncoderConfig(
      bert=bert, projection_size=16, pooling="mean", projection_dropout_rate=0.0
    ),
  )
  return changed(config, **fields)


def rows(store, workdir, *, examples=None, **fields):
  """Trains, and returns the logged metrics, if any."""
  train_retriever(
    workdir=str(workdir),
    passages=store.directory,
    examples=examples and str(examples),
    contrastive=training(store, **fields),
  )
  with open(workdir / "metrics.jsonl", encoding="utf-8") as file:
    return [json.loads(line) for line in file]


def learned(rows):
  """Returns by how much more often queries find their passages at the end."""
  found = [row["loss/accuracy"] for row in rows]
  return np.mean(found[-20:]) - np.mean(found[:20])


def test_pairs_mined_before_training_are_learned(people, tmp_path):
  mined = tmp_path / "pairs"
  prepare_examples(
    task="recurring_spans",
    corpus=people.directory,
    output=str(mined),
    settings=ExampleSettings(query_length=16),
  )
  assert not (tmp_path / "pairs.unfinished").exists()
  trained = rows(people, tmp_path / "run", pairs="recurring_spans", examples=mined)
  assert learned(trained) > 0.1
