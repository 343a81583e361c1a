"""One run of REALM's ablation (Guu et al. 2020, table 2), in the small: on the almanac."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Literal

import jax

from realm_jax import atomic_files, object_store
from realm_jax.jobs.preparation.make_almanac import add_training_sentences, make_corpora
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.runs.training_run import CHECKPOINTS, WarmStart
from realm_jax.training.checkpoints import steps

Part = Literal["pretrained", "start"]

_DUAL_ENCODER = (("dual_encoder", "dual_encoder"),)
_READER = (("knowledge_augmented_encoder", "knowledge_augmented_encoder"),)


def ablate(
  *,
  workdir: str,
  pretrain_ict: Callable[..., None],
  read_first: Callable[..., None],
  untrained: Callable[..., None],
  build_index: Callable[..., None],
  finetune: Callable[..., None],
  evaluate: Callable[..., dict],
  ict_steps: int,
  reading_steps: int,
  num_steps: int,
  finetuning_steps: int,
  seed: int,
  retriever: Part = "pretrained",
  reader: Part = "pretrained",
  ict: bool = True,
  training_sentences: Literal["outside", "inside"] = "outside",
  pretraining: str | None = None,
  common: str | None = None,
  vocab_size: int = 8192,
  passage_length: int = 32,
  num_questions: int = 800,
) -> dict:
  """Pre-trains as this run is configured, fine-tunes on questions, writes `summary.json`.

  A run that was ended goes on where it was. What runs have in common is made by the first of them,
  while the others wait.

  Args:
    workdir: directory of the run.
    pretrain_ict: the configured job.
    read_first: the configured job `pretrain` as it teaches the reader to read, which stands for the
      trained BERT that the paper begins with.
    untrained: the configured job `pretrain` without any step.
    build_index: the configured job.
    finetune: the configured job.
    evaluate: the configured job.
    ict_steps: of the inverse cloze task.
    reading_steps: of learning to read.
    num_steps: of pre-training.
    finetuning_steps: of learning to answer questions.
    seed: that `pretrain_ict`, `read_first` and the others are configured with.
    retriever: what fine-tuning begins with, "pretrained" or from the "start" of pre-training.
    reader: the same of the reader.
    ict: whether pre-training begins with the retriever of the inverse cloze task, or a random one.
    training_sentences: "inside" puts the training corpus into the knowledge corpus as well.
    pretraining: runs of a seed that name it alike share their pre-training, and should configure it
      alike; none: the run has its own.
    common: directory of what runs share; none: `common`, beside `workdir`.
    vocab_size: wordpieces.
    passage_length: wordpieces of a passage at most.
    num_questions: asked about facts that no training sentence mentions.

  Returns:
    What `summary.json` holds: figures of the retriever before fine-tuning, `zero_shot`, and of the
    fine-tuned model, `finetuned`.

  Raises:
    KeyboardInterrupt: if a training was told to stop.
    ChildProcessError: if the trainer or the index builder fails.
    ValueError: if a directory lies in an object store.
  """
  object_store.check_local(workdir=workdir, common=common)
  started = time.time()
  common = common or os.path.join(os.path.dirname(os.path.abspath(workdir)), "common")
  of_seed = os.path.join(common, f"seed={seed}")
  # Every model is compiled once, whichever run needs it first.
  os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(common, "compiled")
  jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])

  world = os.path.join(common, "world")
  with _once(world) as unmade:
    if unmade:
      make_corpora(world, seed=0, vocab_size=vocab_size, passage_length=passage_length)
      add_training_sentences(world, name="passages_and_training", passage_length=passage_length)
  passages = os.path.join(world, "passages")

  start = os.path.join(of_seed, "start")
  ict_checkpoints, ict_index = (os.path.join(start, "ict", n) for n in (CHECKPOINTS, "index"))
  with _once(start) as unmade:
    if unmade:
      pretrain_ict(
        workdir=os.path.join(start, "ict"),
        passages=os.path.join(world, "whole_documents"),
        num_steps=ict_steps,
      )
      _refuse_unfinished(ict_checkpoints, ict_steps)
      build_index(checkpoints=ict_checkpoints, passages=passages, index=ict_index)
      read_first(
        workdir=os.path.join(start, "reading"),
        corpus=passages,
        passages=passages,
        index=ict_index,
        warm_starts=(WarmStart(ict_checkpoints, _DUAL_ENCODER),),
        num_steps=reading_steps,
      )
      _refuse_unfinished(os.path.join(start, "reading", CHECKPOINTS), reading_steps)
  reading = os.path.join(start, "reading", CHECKPOINTS)

  searched = passages
  if training_sentences == "inside":
    searched = os.path.join(world, "passages_and_training")
  launched = workdir if pretraining is None else os.path.join(of_seed, pretraining)
  pretrained = os.path.join(launched, "pretrain", CHECKPOINTS)
  if "pretrained" in (retriever, reader):
    with _once(os.path.join(launched, "pretraining")) as unmade:
      if unmade:
        inputs = {"corpus": os.path.join(world, "training"), "passages": searched}
        warm_start = reading
        if not ict:
          begun = os.path.join(launched, "begun")
          untrained(
            workdir=begun, index=begun, warm_starts=(WarmStart(reading, _READER),), **inputs
          )
          warm_start = os.path.join(begun, CHECKPOINTS)
        launch_local(
          workdir=launched,
          config=os.path.join(workdir, "ablate_config.gin"),
          num_steps=num_steps,
          warm_start=warm_start,
          **inputs,
        )

  if retriever == "pretrained":
    retriever_checkpoints, index = pretrained, os.path.join(launched, "index")
  else:
    retriever_checkpoints, index, searched = ict_checkpoints, ict_index, passages
  asked = {
    "questions": os.path.join(world, "almanac", "heldout_questions.jsonl"),
    "passages": searched,
    "index": index,
    "max_questions": num_questions,
  }
  zero_shot = evaluate(
    checkpoints=retriever_checkpoints, output=os.path.join(workdir, "zero_shot"), **asked
  )
  answering = os.path.join(workdir, "finetune", CHECKPOINTS)
  finetune(
    workdir=os.path.join(workdir, "finetune"),
    questions=os.path.join(world, "almanac", "training_questions.jsonl"),
    passages=searched,
    index=index,
    retriever=retriever_checkpoints,
    reader=pretrained if reader == "pretrained" else reading,
    num_steps=finetuning_steps,
  )
  _refuse_unfinished(answering, finetuning_steps)
  finetuned = evaluate(checkpoints=answering, output=os.path.join(workdir, "finetuned"), **asked)
  summary = {
    "seconds": round(time.time() - started, 1),
    "zero_shot": zero_shot,
    "finetuned": finetuned,
  }
  atomic_files.write_text(
    os.path.join(workdir, "summary.json"), json.dumps(summary, indent=2) + "\n"
  )
  return summary


@contextlib.contextmanager
def _once(directory: str) -> Iterator[bool]:
  """Yields whether a directory has still to be filled; meanwhile other runs wait for it."""
  os.makedirs(directory, exist_ok=True)
  finished = os.path.join(directory, "finished")
  with open(os.path.join(directory, "lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    unmade = not os.path.exists(finished)
    yield unmade
    if unmade:
      atomic_files.write_text(finished, "")


def _refuse_unfinished(checkpoints: str, num_steps: int) -> None:
  # A training that was told to stop saves and returns, as if it had finished.
  if max(steps(checkpoints), default=0) < num_steps:
    raise KeyboardInterrupt
