"""Pre-training from raw text to answers, on a few hundred facts and a model of a few rows."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from realm_jax.index import generations
from realm_jax.index.searcher import SearcherConfig
from realm_jax.jobs.build_index import build_index
from realm_jax.jobs.evaluate import evaluate
from realm_jax.jobs.learn_vocabulary import learn_vocabulary
from realm_jax.jobs.make_almanac import make_almanac
from realm_jax.jobs.prepare_corpus import prepare_corpus
from realm_jax.jobs.pretrain import pretrain
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training import checkpoints
from realm_jax.training.optimizer import OptimizerConfig

pytestmark = pytest.mark.timeout(600)

BERT = BertConfig(
  vocab_size=1024,
  hidden_size=16,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=48,
  dropout_rate=0.1,
)
SETTINGS = {
  "dual_encoder": DualEncoderConfig(bert=BERT, projection_size=8),
  "knowledge_augmented_encoder": BERT,
  "retrieval": RetrievalConfig(num_passages=3, passage_length=32, joint_length=48),
  "optimizer": OptimizerConfig(learning_rate=1e-3, num_steps=8, warmup_steps=2),
  "batch_size": 8,
  "query_length": 24,
  "max_masks": 3,
  "log_every": 1,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
  root = tmp_path_factory.mktemp("world")
  make_almanac(output=str(root / "almanac"), num_invented_entities=60, num_edits=6)
  documents, training = (str(root / "almanac" / f"{n}.jsonl") for n in ("documents", "training"))
  vocabulary = str(root / "vocabulary")
  learn_vocabulary(inputs=[documents, training], output=vocabulary, vocab_size=1024)
  for source, name in ((documents, "passages"), (training, "training")):
    prepare_corpus(
      input=source,
      output=str(root / name),
      vocabulary=vocabulary,
      max_passage_length=32,
      num_shards=1,
    )
  start(root, "first", num_steps=0)
  build_index(
    checkpoints=str(root / "first" / "checkpoints"),
    passages=str(root / "passages"),
    index=str(root / "index"),
    searcher=SearcherConfig(kind="scann"),
  )
  return root


def start(root, name, **settings):
  pretrain(
    workdir=str(root / name),
    corpus=str(root / "training"),
    passages=str(root / "passages"),
    index=str(root / "index"),
    generation=0,
    **{**SETTINGS, **settings},
  )


def losses(root, name):
  with open(root / name / "metrics.jsonl", encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  return {row["step"]: row["loss/total"] for row in rows}


def test_a_resumed_training_has_the_losses_of_one_never_stopped(world):
  start(world, "whole", num_steps=8, checkpoint_every=100)
  start(world, "halves", num_steps=4, checkpoint_every=4)
  start(world, "halves", num_steps=8, checkpoint_every=4)
  whole = losses(world, "whole")
  assert len(whole) == 8
  assert losses(world, "halves") == whole


def test_another_seed_gives_other_losses(world):
  start(world, "other", num_steps=1, seed=1)
  start(world, "same", num_steps=1, seed=0)
  assert losses(world, "other")[1] != losses(world, "same")[1]


def test_a_resumed_run_refuses_another_model(world):
  start(world, "fixed", num_steps=1, checkpoint_every=1)
  smaller = DualEncoderConfig(bert=BERT, projection_size=4)
  with pytest.raises(ValueError, match="another model.*projection"):
    start(world, "fixed", num_steps=2, dual_encoder=smaller)


def test_a_checkpoint_answers_questions_and_a_second_generation_follows_the_first(world):
  start(world, "asked", num_steps=2, checkpoint_every=2)
  keywords = {
    "checkpoints": str(world / "asked" / "checkpoints"),
    "passages": str(world / "passages"),
    "index": str(world / "asked_index"),
  }
  build_index(**keywords)
  build_index(**keywords)
  assert generations.all_generations(keywords["index"]) == [0, 1]
  assert generations.read_manifest(keywords["index"], 1).training_step == 2
  figures = evaluate(
    **keywords, questions=str(world / "almanac" / "heldout.jsonl"), max_questions=20
  )
  assert figures["questions"] == 20
  assert 0 <= figures["exact_match"] <= 1


def test_sigkill_of_the_builder_leaves_nothing_that_is_used(world):
  start(world, "followed", num_steps=1, checkpoint_every=1)
  index = str(world / "followed_index")
  command = [
    sys.executable,
    "-m",
    "realm_jax.main",
    "build_index",
    f"--checkpoints={world / 'followed' / 'checkpoints'}",
    f"--passages={world / 'passages'}",
    f"--index={index}",
    "--follow=true",
    "--poll_seconds=0.1",
  ]
  environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
  with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as builder:
    deadline = time.monotonic() + 90
    while not os.path.exists(index) and time.monotonic() < deadline:
      time.sleep(0.02)
    builder.send_signal(signal.SIGKILL)
  complete = generations.all_generations(index)
  build_index(
    checkpoints=str(world / "followed" / "checkpoints"),
    passages=str(world / "passages"),
    index=index,
  )
  assert generations.all_generations(index) == [*complete, len(complete)]
  assert checkpoints.steps(world / "followed" / "checkpoints") == [0, 1]
