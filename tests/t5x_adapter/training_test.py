"""Training in t5x's loop: our own losses, a live swap, a restart, published checkpoints."""

import functools
import glob
import json
import os
import sys

import numpy as np
import pytest

pytest.importorskip("t5x", reason="needs the extra t5x; see docs/t5x.md")

import tensorflow as tf
from t5x import partitioning, utils
from t5x import train as t5x_train

from realm_jax.checkpoints import orbax_files
from realm_jax.checkpoints.opening import Sources
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.training.build_index import build_index
from realm_jax.retrieval.index_refresher import RefreshConfig
from realm_jax.t5x_adapter.models import PretrainingModel, RealmOptimizer
from realm_jax.t5x_adapter.trainer import RetrievingTrainer
from realm_jax.tasks import salient_span_masking
from realm_jax.training.run.metric_writers import METRICS_FILE
from realm_jax.training.run.optimizer import learning_rate_schedule

pytestmark = pytest.mark.timeout(600)

LENGTHS = {"query": 32, "mlm_positions": 3, "mlm_targets": 3}


def recording(losses):
  """Returns a trainer that records the loss of every step."""

  class Recording(RetrievingTrainer):
    def train(self, *arguments, **keywords):
      summary = super().train(*arguments, **keywords)
      losses.append((self._host_step, float(summary.result()["loss/total"].value)))
      return summary

  return Recording


@pytest.fixture(scope="module")
def train(world, optimizer_settings):
  """`train(name, model, task, ...)` trains in t5x's loop; returns the losses by step."""

  def run(name, *, model, task, eval_task=None, total_steps, period, stats_period=1, **keywords):
    losses = []

    def data(of, *, shuffle):
      return utils.DatasetConfig(
        mixture_or_task_name=of,
        task_feature_lengths=LENGTHS,
        split="train",
        batch_size=8,
        shuffle=shuffle,
        seed=0,
      )

    t5x_train.train(
      model=model,
      train_dataset_cfg=data(task, shuffle=True),
      train_eval_dataset_cfg=eval_task and data(eval_task, shuffle=False),
      infer_eval_dataset_cfg=None,
      checkpoint_cfg=utils.CheckpointConfig(
        save=utils.SaveCheckpointConfig(period=period, keep=2, save_dataset=True),
        restore=utils.RestoreCheckpointConfig(path=[]),
      ),
      partitioner=partitioning.PjitPartitioner(
        model_parallel_submesh=(1, 1, 1, 1),
        logical_axis_rules=partitioning.standard_logical_axis_rules(),
      ),
      trainer_cls=functools.partial(
        recording(losses),
        learning_rate_fn=learning_rate_schedule(optimizer_settings, num_steps=100),
        num_microbatches=None,
        publish_every=period,
        **keywords,
      ),
      model_dir=str(world / name),
      total_steps=total_steps,
      eval_steps=3,
      eval_period=period,
      stats_period=stats_period,
      random_seed=0,
      summarize_config_fn=lambda *arguments: None,
    )
    return dict(losses)

  return run


@pytest.fixture(scope="module")
def pretrain_under_t5x(world, train, model_settings, optimizer_settings):
  """`pretrain_under_t5x(name, total_steps=...)` trains on the index of this name."""
  passages = str(world / "passages")

  def masked(corpus):
    return salient_span_masking.register(
      corpus=str(world / corpus), vocabulary=os.path.join(passages, "vocabulary")
    )

  def run(name, *, total_steps):
    index = str(world / f"{name}_index")
    return train(
      name,
      model=PretrainingModel(
        RealmOptimizer(optimizer_settings, num_steps=100),
        passages=passages,
        start=[str(world / "first" / "checkpoints")],
        **model_settings,
      ),
      task=masked("training"),
      eval_task=masked("passages"),
      total_steps=total_steps,
      period=10,
      stats_period=5,
      index=index,
      # From step 10 on there is no going on without the generation of step 10.
      refresh=RefreshConfig(poll_seconds=0.05, max_staleness_steps=9, when_late="wait"),
    )

  return run


@pytest.fixture(scope="module")
def index_built(world, alongside):
  """`with index_built(name, until_step=...):` a process builds an index, following this run."""

  def follow(name, *, until_step):
    command = [
      *(sys.executable, "-m", "realm_jax.main", "build_index"),
      f"--checkpoints={world / name / 'checkpoints'}",
      f"--passages={world / 'passages'}",
      f"--index={world / f'{name}_index'}",
      *("--follow=true", f"--until_step={until_step}", "--poll_seconds=0.1"),
    ]
    return alongside(command)

  return follow


@pytest.fixture(scope="module")
def whole(pretrain_under_t5x, index_built):
  """Losses of 20 steps, with an index builder that follows in a process of its own."""
  with index_built("whole", until_step=10):
    return pretrain_under_t5x("whole", total_steps=20)


def own_losses(workdir):
  with open(workdir / METRICS_FILE, encoding="utf-8") as file:
    return [row["loss/total"] for row in map(json.loads, file)]


def swaps(workdir):
  with open(workdir / "swaps.jsonl", encoding="utf-8") as file:
    return [(row["step"], row["generation"], row["training_step"]) for row in map(json.loads, file)]


def evaluations(model_dir):
  """Returns the losses that t5x's evaluation wrote, by step."""
  found = {}
  for path in glob.glob(str(model_dir / "training_eval" / "*" / "events*")):
    for event in tf.compat.v1.train.summary_iterator(path):
      for value in event.summary.value:
        if value.tag == "loss/total":
          found[event.step] = float(tf.make_ndarray(value.tensor))
  return found


def test_a_generation_is_swapped_in_while_t5x_trains(world, whole):
  assert list(whole) == [5, 10, 15, 20]
  assert swaps(world / "whole") == [(0, 0, 0), (10, 1, 10)]
  assert evaluations(world / "whole").keys() == {10, 20}
  assert evaluations(world / "whole")[20] < evaluations(world / "whole")[10]


def test_the_losses_are_those_of_our_own_trainer(
  world, whole, train, model_settings, optimizer_settings, pretrain_ourselves
):
  passages = str(world / "passages")
  first = str(world / "first" / "checkpoints")
  pretrain_ourselves("own", num_steps=5, start=[first])
  ours = own_losses(world / "own")
  assert whole[5] == pytest.approx(np.mean(ours), abs=1e-5)
  first = train(
    "first_step",
    model=PretrainingModel(
      RealmOptimizer(optimizer_settings, num_steps=100),
      passages=passages,
      start=[str(world / "first" / "checkpoints")],
      **model_settings,
    ),
    task=salient_span_masking.register(
      corpus=str(world / "training"), vocabulary=os.path.join(passages, "vocabulary")
    ),
    total_steps=1,
    period=1,
    index=str(world / "index"),
    generation=0,
  )
  assert first[1] == pytest.approx(ours[0], abs=1e-5)
  assert first[1] != pytest.approx(ours[1], abs=1e-2)


def test_a_resumed_training_has_the_losses_of_one_never_stopped(
  world, whole, pretrain_under_t5x, index_built
):
  with index_built("halves", until_step=0):
    begun = pretrain_under_t5x("halves", total_steps=10)
  build_index(
    checkpoints=str(world / "halves" / "checkpoints"),
    passages=str(world / "passages"),
    index=str(world / "halves_index"),
    builder=BuilderConfig(other_runs="accept"),
  )
  resumed = pretrain_under_t5x("halves", total_steps=20)
  assert list(resumed) == [15, 20]
  assert {**begun, **resumed} == whole
  assert swaps(world / "halves") == [(0, 0, 0), (10, 1, 10)]
  assert evaluations(world / "halves") == evaluations(world / "whole")


def test_published_checkpoints_are_our_jobs(world, whole):
  published = str(world / "whole" / "checkpoints")
  assert orbax_files.steps(published) == [0, 10, 20]
  metadata = orbax_files.read_metadata(orbax_files.resolve(published))
  assert metadata["generation"] == 1
  figures = evaluate(
    sources=Sources(
      checkpoints=published, passages=str(world / "passages"), index=str(world / "whole_index")
    ),
    questions=str(world / "almanac" / "heldout.jsonl"),
    max_questions=8,
  )
  assert figures["questions"] == 8
