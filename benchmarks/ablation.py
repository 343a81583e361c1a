"""Runs one row of REALM's ablation (Guu et al. 2020, table 2) on the almanac.

realm benchmarks/ablation.py --gin_file=gin/experiments/ablation.gin --workdir=runs/ablation/realm
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from typing import Literal

from realm_jax.checkpoints.opening import Sources
from realm_jax.foundations import atomic_files, choices, object_store
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.demonstration.corpora import make_corpora, prepare_facts
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.finetune import finetune
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.jobs.training.train_retriever import train_retriever
from realm_jax.training.recipes.finetuning import Finetuning
from realm_jax.training.recipes.plain_training import ContrastiveTraining
from realm_jax.training.recipes.pretraining import Pretraining
from realm_jax.training.run.training_run import CHECKPOINTS

Part = Literal["pretrained", "start"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(choices.Checked):
  """The settings of one row of the table, in addition to those of its trainings.

  Attributes:
    retriever: Retriever that fine-tuning starts from: "pretrained", or from the "start" of
      pre-training.
    reader: Reader that fine-tuning starts from: "pretrained", or from the "start" of pre-training.
    retriever_start: Whether pre-training starts from the retriever of the inverse cloze task or
      from a random one.
    training_sentences: "inside" adds the training corpus to the knowledge corpus.
    shared: Name of the pre-training, which runs of a seed with the same name share and should
      configure alike; None gives the run its own.
  """

  retriever: Part = "pretrained"
  reader: Part = "pretrained"
  retriever_start: Literal["inverse_cloze", "random"] = "inverse_cloze"
  training_sentences: Literal["outside", "inside"] = "outside"
  shared: str | None = None


def ablation(
  *,
  workdir: str,
  contrastive: ContrastiveTraining,
  reading: Pretraining,
  pretraining: Pretraining,
  finetuning: Finetuning,
  builder: BuilderConfig = BuilderConfig(),
  row: Row = Row(),
  common: str | None = None,
  vocab_size: int = 8192,
  passage_length: int = 32,
  num_questions: int = 800,
) -> dict:
  """Pre-trains, fine-tunes on questions, and writes `summary.json`.

  An interrupted run resumes. The first run makes what runs have in common, while the others wait.

  Args:
    workdir: Directory of the run.
    contrastive: The inverse cloze training.
    reading: The training of the reader alone, in place of the paper's trained BERT.
    pretraining: The pre-training; all trainings should have its seed.
    finetuning: The training on questions.
    builder: The index builder.
    row: The settings of this row.
    common: Directory that runs share; None uses `common` next to `workdir`.
    vocab_size: Size of the vocabulary.
    passage_length: Maximum wordpieces of a passage.
    num_questions: Number of questions about facts that no training sentence mentions.

  Returns:
    The content of `summary.json`: metrics of the retriever before fine-tuning (`zero_shot`) and of
    the fine-tuned model (`finetuned`).

  Raises:
    SystemExit: If a training was told to stop.
    ChildProcessError: If the trainer or the index builder fails.
    ValueError: If a directory is in an object store.
  """
  object_store.check_local(workdir=workdir, common=common)
  started = time.time()
  common = common or os.path.join(os.path.dirname(os.path.abspath(workdir)), "common")

  world = os.path.join(common, "world")
  with _once(world) as needed:
    if needed:
      make_corpora(world, seed=0, vocab_size=vocab_size, passage_length=passage_length)
      add_training_sentences(world, name="passages_and_training", passage_length=passage_length)
  of_seed = os.path.join(common, f"seed={pretraining.run.seed}")
  start = os.path.join(of_seed, "start")
  with _once(start) as needed:
    if needed:
      _warm_up(start, world, contrastive=contrastive, reading=reading, builder=builder)
  begun = os.path.join(start, "reading", CHECKPOINTS)
  searched = os.path.join(world, "passages")
  if row.training_sentences == "inside":
    searched = os.path.join(world, "passages_and_training")
  launched = workdir if row.shared is None else os.path.join(of_seed, row.shared)
  if "pretrained" in (row.retriever, row.reader):
    with _once(os.path.join(launched, "pretraining")) as needed:
      if needed:
        _pretrain(
          launched,
          pretraining=pretraining,
          config=os.path.join(workdir, "ablation_config.gin"),
          begun=begun,
          retriever_start=row.retriever_start,
          corpus=os.path.join(world, "training"),
          passages=searched,
        )
  pretrained = os.path.join(launched, "pretrain", CHECKPOINTS)
  if row.retriever == "pretrained":
    retriever, index = pretrained, os.path.join(launched, "index")
  else:
    retriever, index = (os.path.join(start, "ict", name) for name in (CHECKPOINTS, "index"))
    searched = os.path.join(world, "passages")
  asked = {
    "questions": os.path.join(world, "almanac", "heldout_questions.jsonl"),
    "max_questions": num_questions,
  }
  sources = Sources(checkpoints=retriever, passages=searched, index=index)
  zero_shot = evaluate(sources=sources, output=os.path.join(workdir, "zero_shot"), **asked)
  answering = os.path.join(workdir, "finetune", CHECKPOINTS)
  reader = pretrained if row.reader == "pretrained" else begun
  finetune(
    workdir=os.path.join(workdir, "finetune"),
    questions=os.path.join(world, "almanac", "training_questions.jsonl"),
    passages=searched,
    index=index,
    start=(f"{retriever}:dual_encoder", f"{reader}:span_reader"),
    finetuning=finetuning,
  )
  sources = dataclasses.replace(sources, checkpoints=answering)
  finetuned = evaluate(sources=sources, output=os.path.join(workdir, "finetuned"), **asked)
  summary = {
    "seconds": round(time.time() - started, 1),
    "zero_shot": zero_shot,
    "finetuned": finetuned,
  }
  atomic_files.write_json(os.path.join(workdir, "summary.json"), summary)
  return summary


def _warm_up(
  directory: str,
  world: str,
  *,
  contrastive: ContrastiveTraining,
  reading: Pretraining,
  builder: BuilderConfig,
) -> None:
  """Trains the retriever on the inverse cloze task, then the reader, in `ict/` and `reading/`."""
  retriever, passages = os.path.join(directory, "ict"), os.path.join(world, "passages")
  train_retriever(
    workdir=retriever, passages=os.path.join(world, "whole_documents"), contrastive=contrastive
  )
  checkpoints, index = (os.path.join(retriever, name) for name in (CHECKPOINTS, "index"))
  build_index(checkpoints=checkpoints, passages=passages, index=index, builder=builder)
  pretrain(
    workdir=os.path.join(directory, "reading"),
    corpus=passages,
    passages=passages,
    index=index,
    start=(checkpoints,),
    pretraining=reading,
  )


def _pretrain(
  workdir: str,
  *,
  pretraining: Pretraining,
  config: str,
  begun: str,
  retriever_start: str,
  corpus: str,
  passages: str,
) -> None:
  """Pre-trains next to an index builder from the checkpoints `begun`, or only from their reader."""
  if retriever_start == "random":
    start = os.path.join(workdir, "begun")
    pretrain(
      workdir=start,
      index=start,
      pretraining=pretraining.with_steps(0),
      start=(f"{begun}:knowledge_augmented_encoder",),
      corpus=corpus,
      passages=passages,
    )
    begun = os.path.join(start, CHECKPOINTS)
  launch_local(
    workdir=workdir,
    config=config,
    corpus=corpus,
    passages=passages,
    pretraining=pretraining,
    start=(begun,),
  )


def add_training_sentences(directory: str, *, name: str, passage_length: int) -> None:
  """Makes passages of facts and training sentences, so that queries have trivial passages."""
  almanac, both = os.path.join(directory, "almanac"), os.path.join(directory, f"{name}_texts")
  os.makedirs(both, exist_ok=True)
  for file in ("documents.jsonl", "training.jsonl"):
    shutil.copy(os.path.join(almanac, file), both)
  prepare_facts(directory, both, name=name, passage_length=passage_length)


@contextlib.contextmanager
def _once(directory: str) -> Iterator[bool]:
  """Yields whether a directory has yet to be filled, while other runs wait for it."""
  os.makedirs(directory, exist_ok=True)
  finished = os.path.join(directory, "finished")
  with open(os.path.join(directory, "lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    needed = not os.path.exists(finished)
    yield needed
    if needed:
      atomic_files.write_text(finished, "")
