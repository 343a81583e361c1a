"""Demonstrates pre-training: almanac, reader, trainer and index builder, evaluation, edits."""

import contextlib
import io
import itertools
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.figure

from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus import input_files
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.vocabulary import learn_vocabulary
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.devices import directory_lock
from realm_jax.evaluation.systems import Asking
from realm_jax.foundations import atomic_files, choices, object_store, text_files
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.ask import ask
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.training.metric_writers import METRICS_FILE, SWAPS_FILE
from realm_jax.training.pretraining import Pretraining
from realm_jax.training.training_run import CHECKPOINTS

_CONFIG = "demo_config.gin"
WORKDIR_KIND = DirectoryKind(
  name="a demonstration",
  files=(
    *("*_config.gin", directory_lock.LOCK_FILE, "summary.json", "curves.png", "logs/"),
    *("almanac/", "vocabulary/", "passages/", "whole_documents/", "training/"),
    *("ict/", "untrained/", "reading/", "pretrain/", "index/", "index.unfinished/", "evaluation/"),
    *("edited_passages/", "edited_index/", "edited_index.unfinished/", "evaluation_edited/"),
  ),
)
_EVALUATED = 800  # held-out questions
_PANELS = (
  ("loss", ("loss/total",)),
  ("accuracy", ("loss/masked_token_accuracy", "loss/span_accuracy", "loss/null_span_accuracy")),
  ("retrieval utility (nats)", ("retrieval/retrieval_utility",)),
  ("null mass and entropy of p(z|x)", ("retrieval/null_mass", "retrieval/retrieval_entropy")),
  ("rank correlation, stale to fresh", ("retrieval/stale_rank_correlation",)),
  ("staleness (steps)", ("index/staleness_steps",)),
)
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
  path = lambda *parts: os.path.join(workdir, *parts)  # noqa: E731
  _clear(workdir)
  started = time.time()

  def say(text: str) -> None:
    print(f"\n[{time.time() - started:4.0f} s] {text}", flush=True)

  say("A world of facts: documents that state them, sentences that mention them in other words")
  make_corpora(workdir, seed=seed, vocab_size=vocab_size, passage_length=passage_length)
  held_out = {"questions": path("almanac", "heldout.jsonl"), "max_questions": _EVALUATED}

  say("The untrained model, for comparison")
  passages = path("passages")
  untrained = Sources(
    checkpoints=path("untrained", CHECKPOINTS), passages=passages, index=path("untrained", "index")
  )
  pretrain(
    workdir=path("untrained"),
    corpus=path("training"),
    passages=passages,
    index=untrained.index,
    pretraining=pretraining.with_steps(0),
  )
  build_index(
    checkpoints=untrained.checkpoints, passages=passages, index=untrained.index, builder=builder
  )
  before = _measured(sources=untrained, **held_out)

  say("The reader learns to read: each masked passage next to itself")
  pretrain(
    workdir=path("reading"),
    corpus=passages,
    passages=passages,
    index=untrained.index,
    start=(untrained.checkpoints,),
    pretraining=reading,
  )

  say("Pre-training: a trainer and an index builder, which share only a directory")
  launch_local(
    config=path(_CONFIG),
    workdir=workdir,
    corpus=path("training"),
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
    "after_pretraining": _measured(sources=trained, **held_out, output=path("evaluation")),
    "closed_book": _measured(sources=trained, **held_out, asking=Asking(book="closed")),
  }
  seed_sentence = ask(SEED_SENTENCE, sources=trained)

  say("The corpus is edited and indexed again, without training")
  answered = _edit(path, trained.checkpoints, passage_length=passage_length, builder=builder)

  swaps = text_files.read_log(path("pretrain", SWAPS_FILE))
  summary = {
    "wall_seconds": round(time.time() - started, 1),
    "generations_swapped": len(swaps) - 1,
    "max_staleness_steps": _max_staleness_steps(swaps, num_steps=pretraining.run.num_steps),
    "heldout": held_out_metrics,
    "edited": {
      "questions": answered["questions"],
      "answered_new": round(answered["exact_match"] * answered["questions"]),
    },
    "seed_sentence": seed_sentence,
  }
  atomic_files.write_json(path("summary.json"), summary)
  rows = text_files.read_log(path("pretrain", METRICS_FILE))
  _draw_curves(rows, swaps=swaps, output=path("curves.png"))
  say(f"Done; the figures are in {path('summary.json')}, the curves in {path('curves.png')}")
  print(_table(summary), flush=True)
  return summary


def _clear(workdir: str) -> None:
  """Removes the files of an earlier demonstration, but not this one's configuration."""
  WORKDIR_KIND.check(workdir)
  for path in pathlib.Path(workdir).iterdir():
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path)
    elif path.name not in (_CONFIG, directory_lock.LOCK_FILE):
      path.unlink()


def make_corpora(
  directory: str,
  *,
  seed: int,
  vocab_size: int,
  passage_length: int,
  num_invented_entities: int = 6_500,
) -> None:
  """Writes the almanac and the corpora made from it.

  These are `almanac/`, `vocabulary/`, `passages/` (one fact each), `whole_documents/` (the same
  facts by subject) and `training/` (the training corpus).

  Args:
    seed: Seeds the world.
    passage_length: Maximum wordpieces of a passage.
    num_invented_entities: See `make_almanac`.
  """
  almanac = os.path.join(directory, "almanac")
  make_almanac(output=almanac, seed=seed, num_invented_entities=num_invented_entities)
  documents, training = (os.path.join(almanac, f"{n}.jsonl") for n in ("documents", "training"))
  read = [documents, training, os.path.join(almanac, "values.jsonl")]
  files = itertools.chain(*input_files.find_files(read, format="jsonl"))
  learned = learn_vocabulary([*files], vocab_size=vocab_size)
  learned.save(os.path.join(directory, "vocabulary"))
  prepare_facts(directory, documents, name="passages", passage_length=passage_length)
  whole = ChunkingConfig(max_passage_length=3 * passage_length // 2)
  _prepare(directory, documents, name="whole_documents", chunking=whole)
  chunking = ChunkingConfig(max_passage_length=64)
  _prepare(directory, training, name="training", chunking=chunking)


def prepare_facts(directory: str, documents: str, *, name: str, passage_length: int) -> None:
  """Makes passages of one fact each from documents, with the vocabulary in the directory."""
  chunking = ChunkingConfig(max_passage_length=passage_length, max_sentences=1)
  _prepare(directory, documents, name=name, chunking=chunking)


def _prepare(directory: str, source: str, *, name: str, chunking: ChunkingConfig) -> None:
  prepare_corpus(
    input=source,
    output=os.path.join(directory, name),
    vocabulary=os.path.join(directory, "vocabulary"),
    chunking=chunking,
    num_shards=1,
  )


def _edit(
  path: Callable[..., str], checkpoints: str, *, passage_length: int, builder: BuilderConfig
) -> dict:
  """Edits the corpus, indexes it again and asks for the new values; returns the metrics."""
  edited = path("almanac", "edited")
  prepare_facts(
    path(),
    os.path.join(edited, "documents.jsonl"),
    name="edited_passages",
    passage_length=passage_length,
  )
  sources = Sources(
    checkpoints=checkpoints, passages=path("edited_passages"), index=path("edited_index")
  )
  build_index(
    checkpoints=checkpoints, passages=sources.passages, index=sources.index, builder=builder
  )
  questions = os.path.join(edited, "questions.jsonl")
  output = path("evaluation_edited")
  return _measured(sources=sources, questions=questions, output=output)


def _measured(**settings: Any) -> dict:
  """Evaluates without printing the card, so that the demonstration stays readable."""
  with contextlib.redirect_stdout(io.StringIO()):
    return evaluate(**settings)


def _max_staleness_steps(swaps: list[dict], *, num_steps: int) -> int:
  """Returns the maximum staleness of the index in steps, given when each was swapped in."""
  ends = [swap["step"] for swap in swaps[1:]] + [num_steps]
  return max(end - swap["training_step"] for swap, end in zip(swaps, ends, strict=True))


def _draw_curves(metrics: Sequence[dict], *, swaps: Sequence[dict], output: str) -> None:
  """Plots the lines of `metrics.jsonl` over steps; each swap becomes a dotted line."""
  figure = matplotlib.figure.Figure(figsize=(12, 6.5), layout="constrained")
  for axes, (title, names) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
    for name in names:
      points = [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
      axes.plot(*zip(*points, strict=True), label=name.split("/")[1].replace("_", " "))
    for swap in swaps[1:]:
      axes.axvline(swap["step"], color="grey", linestyle=":", linewidth=0.8)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=8)
    if len(names) > 1:
      axes.legend(fontsize=8)
  figure.suptitle("Pre-training; dotted: a new index generation is swapped in", fontsize=11)
  figure.savefig(output, dpi=110)


def _table(summary: dict) -> str:
  rows = ["held-out facts                recall@5   exact match   (real / invented)"]
  for name, metrics in summary["heldout"].items():
    groups = metrics.get("groups", {})
    groups = " / ".join(
      f"{groups[name]['exact_match']:.2f}" for name in ("real", "invented") if name in groups
    )
    # Closed-book answers do not depend on the passages found.
    recall = "-" if name == "closed_book" else f"{metrics['recall@5']:.3f}"
    rows.append(
      f"  {name.replace('_', ' '):<26}  {recall:>8}   {metrics['exact_match']:11.3f}   ({groups})"
    )
  edited = summary["edited"]
  rows += [
    f"edited facts answered with the new value: {edited['answered_new']} of {edited['questions']}",
    f"generations swapped in while training: {summary['generations_swapped']}, "
    f"at most {summary['max_staleness_steps']} steps stale",
    f"{summary['seed_sentence']['query']}  ->  {summary['seed_sentence']['answer']}",
    f"wall time: {summary['wall_seconds']:.0f} s",
  ]
  return "\n".join(rows)
