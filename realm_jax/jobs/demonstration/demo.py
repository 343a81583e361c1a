"""Demonstrates pre-training: almanac, reader, trainer and index builder, evaluation, edits."""

import dataclasses
import functools
import os
import time

from realm_jax.checkpoints.opening import Sources
from realm_jax.evaluation.systems import Asking
from realm_jax.foundations import choices, object_store
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.ask import ask
from realm_jax.jobs.demonstration import corpora, report
from realm_jax.jobs.demonstration.report import measured
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.training.recipes.pretraining import Pretraining
from realm_jax.training.run.training_run import CHECKPOINTS

WORKDIR_KIND = corpora.WORKDIR_KIND
_EVALUATED = 800  # held-out questions
SEED_SENTENCE = "The [MASK] is the currency of the United Kingdom."


def demo(
  *,
  workdir: str,
  reading: Pretraining,
  pretraining: Pretraining,
  builder: BuilderConfig = BuilderConfig(),
  vocab_size: choices.Count = 8192,
  passage_length: choices.PassageLength = 32,
  seed: choices.Seed = 0,
) -> dict:
  """Runs all of REALM on a small world and writes `summary.json` and `curves.png`.

  Args:
    workdir: Directory of the demonstration. Everything in it is replaced except the configuration,
      which the trainer's and builder's processes read.
    reading: The training of the reader, with passages as queries and a frozen retriever.
    pretraining: The pre-training.
    builder: The index builder.
    vocab_size: Size of the vocabulary.
    passage_length: Maximum wordpieces of a passage.
    seed: Seeds the world.

  Raises:
    ChildProcessError: If the trainer or the builder fails.
  """
  object_store.check_local(workdir=workdir)
  path = functools.partial(os.path.join, workdir)
  corpora.clear(workdir)
  started = time.time()

  def say(text: str) -> None:
    print(f"\n[{time.time() - started:4.0f} s] {text}", flush=True)

  say("A world of facts: documents that state them, sentences that mention them in other words")
  corpora.make_corpora(workdir, seed=seed, vocab_size=vocab_size, passage_length=passage_length)
  passages, training = path("passages"), path("training")
  held_out = {"questions": path("almanac", "heldout.jsonl"), "max_questions": _EVALUATED}

  say("The untrained model, for comparison")
  start, index = path("untrained", CHECKPOINTS), path("untrained", "index")
  train = functools.partial(pretrain, passages=passages, index=index)
  train(workdir=path("untrained"), corpus=training, pretraining=pretraining.with_steps(0))
  untrained = Sources(checkpoints=start, passages=passages, index=index)
  before = report.indexed_and_measured(untrained, builder=builder, **held_out)

  say("The reader learns to read: each masked passage next to itself")
  train(workdir=path("reading"), corpus=passages, start=(start,), pretraining=reading)

  say("Pre-training: a trainer and an index builder, which share only a directory")
  launch_local(
    config=path(corpora.CONFIG),
    workdir=workdir,
    corpus=training,
    passages=passages,
    pretraining=pretraining,
    start=(path("reading", CHECKPOINTS),),
  )

  say("Evaluation on facts that no training sentence mentions")
  trained = Sources(
    checkpoints=path("pretrain", CHECKPOINTS), passages=passages, index=path("index")
  )
  held_out_metrics = {
    "before": before,
    "after_pretraining": measured(sources=trained, **held_out, output=path("evaluation")),
    "closed_book": measured(sources=trained, **held_out, asking=Asking(book="closed")),
  }
  seed_sentence = ask(SEED_SENTENCE, sources=trained)

  say("The corpus is edited and indexed again, without training")
  edited = path("almanac", "edited", "documents.jsonl")
  corpora.prepare_facts(workdir, edited, name="edited_passages", passage_length=passage_length)
  answered = report.indexed_and_measured(
    dataclasses.replace(trained, passages=path("edited_passages"), index=path("edited_index")),
    builder=builder,
    questions=path("almanac", "edited", "questions.jsonl"),
    output=path("evaluation_edited"),
  )

  summary = report.write(
    workdir,
    num_steps=pretraining.run.num_steps,
    wall_seconds=round(time.time() - started, 1),
    heldout=held_out_metrics,
    edited=answered,
    seed_sentence=seed_sentence,
  )
  say(f"Done; the figures are in {path('summary.json')}, the curves in {path('curves.png')}")
  print(report.table(summary), flush=True)
  return summary
