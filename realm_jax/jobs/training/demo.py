"""Shows pre-training at work: almanac, warm start, trainer and index builder, evaluation, edit."""

import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable

import jax

from realm_jax import atomic_files, object_store
from realm_jax.evaluation import curves
from realm_jax.jobs.answering.predict import predict
from realm_jax.jobs.preparation.make_almanac import make_corpora, prepare_facts
from realm_jax.jobs.training.launch_local import launch_local
from realm_jax.runs.training_run import WarmStart
from realm_jax.saved.retrieval_setup import SWAPS_FILE
from realm_jax.training.metric_writers import METRICS_FILE

SEED_SENTENCE = "The [MASK] is the currency of the United Kingdom."


def demo(
  *,
  workdir: str,
  pretrain_ict: Callable[..., None],
  read_first: Callable[..., None],
  untrained: Callable[..., None],
  build_index: Callable[..., None],
  evaluate: Callable[..., dict],
  num_steps: int,
  vocab_size: int = 8192,
  passage_length: int = 32,
  num_evaluated: int = 800,
  seed: int = 0,
) -> dict:
  """Runs the whole of REALM on a small world and writes `summary.json` and `curves.png`.

  Args:
    workdir: directory of the demonstration; made anew, but for the configuration that lies there
      and that the trainer's and the builder's processes read.
    pretrain_ict: the configured job.
    read_first: the configured job `pretrain` as it teaches the reader to read: with the passages
      themselves for queries, and a retriever that stands still.
    untrained: the configured job `pretrain` without any training.
    build_index: the configured job.
    evaluate: the configured job.
    num_steps: of pre-training.
    vocab_size: wordpieces.
    passage_length: wordpieces of a passage at most.
    num_evaluated: held-out questions asked.
    seed: of the world.

  Returns:
    What `summary.json` holds.

  Raises:
    ChildProcessError: if the trainer or the builder fails.
  """
  object_store.check_local(workdir=workdir)
  started = time.time()
  path = lambda *parts: os.path.join(workdir, *parts)  # noqa: E731
  config = pathlib.Path(path("demo_config.gin")).read_text("utf-8")
  found = set(os.listdir(workdir)) - {"demo_config.gin"}
  if found and not found & {"almanac", "compiled"}:
    raise ValueError(
      f"{workdir} holds files that no demonstration made, and it would begin by removing "
      "them; give a new directory"
    )
  shutil.rmtree(workdir)
  os.makedirs(workdir)
  atomic_files.write_text(path("demo_config.gin"), config)
  # Every model is compiled once, whichever process needs it first.
  os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.abspath(path("compiled"))
  jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])

  def say(text: str) -> None:
    print(f"\n[{time.time() - started:4.0f} s] {text}", flush=True)

  say("A world of facts: documents that state them, sentences that mention them in other words")
  make_corpora(workdir, seed=seed, vocab_size=vocab_size, passage_length=passage_length)
  held_out = {
    "questions": path("almanac", "heldout.jsonl"),
    "passages": path("passages"),
    "max_questions": num_evaluated,
  }

  say("Warm start: the inverse cloze task teaches the dual encoder that names matter")
  pretrain_ict(workdir=path("ict"), passages=path("whole_documents"))

  say("The reader learns to read: each masked passage beside itself")
  build_index(
    checkpoints=path("ict", "checkpoints"), passages=path("passages"), index=path("ict", "index")
  )
  read_first(
    workdir=path("reading"),
    corpus=path("passages"),
    passages=path("passages"),
    index=path("ict", "index"),
    warm_starts=(WarmStart(path("ict", "checkpoints"), (("dual_encoder", "dual_encoder"),)),),
  )

  say("The untrained model, for comparison")
  untrained(
    workdir=path("untrained"),
    corpus=path("training"),
    passages=path("passages"),
    index=path("untrained", "index"),
  )
  build_index(
    checkpoints=path("untrained", "checkpoints"),
    passages=path("passages"),
    index=path("untrained", "index"),
  )
  before = evaluate(
    checkpoints=path("untrained", "checkpoints"), index=path("untrained", "index"), **held_out
  )

  say("Pre-training: a trainer and an index builder, which share nothing but a directory")
  run, index = path("pretrain"), path("index")
  launch_local(
    config=path("demo_config.gin"),
    workdir=workdir,
    corpus=path("training"),
    passages=path("passages"),
    num_steps=num_steps,
    warm_start=path("reading", "checkpoints"),
  )

  say("Evaluation on facts that no training sentence mentions")
  checkpoints = os.path.join(run, "checkpoints")
  after_ict = evaluate(checkpoints=checkpoints, index=index, step=0, generation=0, **held_out)
  after = evaluate(checkpoints=checkpoints, index=index, output=path("evaluation"), **held_out)
  closed = evaluate(checkpoints=checkpoints, index=index, book="closed", **held_out)
  seed_sentence = predict(
    query=SEED_SENTENCE, checkpoints=checkpoints, passages=path("passages"), index=index
  )

  say("The corpus is edited and indexed again; nothing is trained")
  edited = path("almanac", "edited")
  prepare_facts(
    workdir,
    os.path.join(edited, "documents.jsonl"),
    name="edited_passages",
    passage_length=passage_length,
  )
  build_index(checkpoints=checkpoints, passages=path("edited_passages"), index=path("edited_index"))
  answered = evaluate(
    checkpoints=checkpoints,
    passages=path("edited_passages"),
    index=path("edited_index"),
    questions=os.path.join(edited, "questions.jsonl"),
    output=path("evaluation_edited"),
  )

  swaps = read_jsonl(os.path.join(run, SWAPS_FILE))
  summary = {
    "wall_seconds": round(time.time() - started, 1),
    "generations_swapped": len(swaps) - 1,
    "max_staleness_steps": max_staleness_steps(swaps, num_steps=num_steps),
    "heldout": {
      "before": before,
      "after_ict": after_ict,
      "after_pretraining": after,
      "closed_book": closed,
    },
    "edited": {
      "asked": answered["questions"],
      "answered_new": round(answered["exact_match"] * answered["questions"]),
    },
    "seed_sentence": seed_sentence,
  }
  atomic_files.write_text(path("summary.json"), json.dumps(summary, indent=2) + "\n")
  curves.draw(read_jsonl(os.path.join(run, METRICS_FILE)), swaps=swaps, output=path("curves.png"))
  say(f"Done; the figures are in {path('summary.json')}, the curves in {path('curves.png')}")
  print(_table(summary), flush=True)
  return summary


def max_staleness_steps(swaps: list[dict], *, num_steps: int) -> int:
  """Returns by how many steps an index lagged at most, given when each was taken into use."""
  ends = [swap["step"] for swap in swaps[1:]] + [num_steps]
  return max(end - swap["training_step"] for swap, end in zip(swaps, ends, strict=True))


def read_jsonl(path: str) -> list[dict]:
  """Returns the objects of a JSON Lines file."""
  with open(path, encoding="utf-8") as file:
    return [json.loads(line) for line in file]


def _table(summary: dict) -> str:
  rows = ["held-out facts                recall@5   exact match   (real / invented)"]
  for name, figures in summary["heldout"].items():
    groups = " / ".join(
      f"{figures[group]['exact_match']:.2f}" for group in ("real", "invented") if group in figures
    )
    # Whoever reads no passage has not been helped by those found.
    recall = "-" if name == "closed_book" else f"{figures['recall@5']:.3f}"
    rows.append(
      f"  {name.replace('_', ' '):<26}  {recall:>8}   {figures['exact_match']:11.3f}   ({groups})"
    )
  edited = summary["edited"]
  rows += [
    f"edited facts answered with the new value: {edited['answered_new']} of {edited['asked']}",
    f"generations swapped in while training: {summary['generations_swapped']}, "
    f"at most {summary['max_staleness_steps']} steps stale",
    f"{summary['seed_sentence']['query']}  ->  {summary['seed_sentence']['answer']}",
    f"wall time: {summary['wall_seconds']:.0f} s",
  ]
  return "\n".join(rows)
