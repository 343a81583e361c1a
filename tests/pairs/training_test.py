"""Contrastive training learns from mined pairs."""

import json

import numpy as np
import pytest

from realm_jax.index.searcher import SearcherConfig
from realm_jax.indexing.builder_config import BuilderConfig
from realm_jax.jobs.preparation.prepare_pairs import prepare_pairs
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.pretrain_contrastive import pretrain_contrastive
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.pairs.found_pairs import PairSettings
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.example_sources import PairData
from realm_jax.runs.training_config import RunConfig
from realm_jax.training.optimizer import OptimizerConfig
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
    data=PairData(batch_size=16, query_length=16, passage_length=32, removal_rate=0.5),
    dual_encoder=DualEncoderConfig(
      bert=bert, projection_size=16, pooling="mean", projection_dropout_rate=0.0
    ),
  )
  return changed(config, **fields)


def rows(store, workdir, *, examples=None, index=None, **fields):
  """Trains, and returns the logged metrics, if any."""
  pretrain_contrastive(
    workdir=str(workdir),
    passages=store.directory,
    examples=examples and str(examples),
    index=index,
    contrastive=training(store, **fields),
  )
  with open(workdir / "metrics.jsonl", encoding="utf-8") as file:
    return [json.loads(line) for line in file]


def learned(rows):
  """Returns by how much more often queries find their passages at the end."""
  found = [row["loss/accuracy"] for row in rows]
  return np.mean(found[-20:]) - np.mean(found[:20])


@pytest.mark.parametrize("pairs", ["recurring_spans", "bm25_imitation"])
def test_pairs_found_before_training_are_learned(people, tmp_path, pairs):
  if pairs != "recurring_spans":
    pytest.importorskip("bm25s", reason="the extra bm25 is not installed")
  found = tmp_path / "pairs"
  settings = PairSettings(query_length=16)
  prepare_pairs(task=pairs, passages=people.directory, output=str(found), settings=settings)
  assert not (tmp_path / "pairs.unfinished").exists()
  assert learned(rows(people, tmp_path / "run", pairs=pairs, examples=found)) > 0.1


def test_the_newest_generation_provides_the_hard_negatives(people, tmp_path):
  found, run, index = tmp_path / "pairs", tmp_path / "run", tmp_path / "index"
  settings = PairSettings(query_length=16, num_wrong=1)
  prepare_pairs(
    task="recurring_spans", passages=people.directory, output=str(found), settings=settings
  )
  fields = {"pairs": "recurring_spans", "hard_negatives": 1}
  rows(people, run, examples=found, num_steps=0, **fields)  # the first generation's parameters
  build_index(
    checkpoints=str(run / "checkpoints"),
    passages=people.directory,
    index=str(index),
    builder=BuilderConfig(searcher=SearcherConfig(kind="exact")),
  )
  logged = rows(people, run, examples=found, index=str(index), num_steps=20, **fields)
  assert {row["index/generation"] for row in logged[1:]} == {0}
  assert max(row["retrieval/positives_found"] for row in logged[1:]) > 0
  mined = rows(people, tmp_path / "mined", examples=found, num_steps=20, **fields)
  assert [row["loss/total"] for row in logged] != [row["loss/total"] for row in mined]


def test_an_index_for_pairs_without_hard_negatives_is_refused(people, tmp_path):
  for fields in ({}, {"pairs": "recurring_spans", "hard_negatives": 0}):
    with pytest.raises(ValueError, match="index=somewhere provides hard negatives, but pairs="):
      rows(people, tmp_path / "run", index="somewhere", **fields)
