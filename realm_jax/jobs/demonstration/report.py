"""The report of a demonstration: its figures, and the curves of its pre-training."""

import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any

import matplotlib.figure

from realm_jax.checkpoints.opening import Sources
from realm_jax.foundations import atomic_files, text_files
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.training.build_index import build_index
from realm_jax.training.run.metric_writers import METRICS_FILE, SWAPS_FILE

_PANELS = (
  ("loss", ("loss/total",)),
  ("accuracy", ("loss/masked_token_accuracy", "loss/span_accuracy", "loss/null_span_accuracy")),
  ("retrieval utility (nats)", ("retrieval/retrieval_utility",)),
  ("null mass and entropy of p(z|x)", ("retrieval/null_mass", "retrieval/retrieval_entropy")),
  ("rank correlation, stale to fresh", ("retrieval/stale_rank_correlation",)),
  ("staleness (steps)", ("index/staleness_steps",)),
)


def measured(**settings: Any) -> dict:
  """Evaluates without printing the card, so that the demonstration stays readable."""
  with contextlib.redirect_stdout(io.StringIO()):
    return evaluate(**settings)


def indexed_and_measured(sources: Sources, *, builder: BuilderConfig, **settings: Any) -> dict:
  """Builds the index of a checkpoint and a corpus, and evaluates them."""
  build_index(
    checkpoints=sources.checkpoints,
    passages=sources.passages,
    index=sources.index,
    builder=builder,
  )
  return measured(sources=sources, **settings)


def write(workdir: str, *, num_steps: int, edited: dict, **figures: object) -> dict:
  """Writes `summary.json` and `curves.png`, and returns the summary.

  Args:
    num_steps: Steps of the pre-training.
    edited: Metrics of the questions about edited facts.
    figures: The rest of the summary.
  """
  run = os.path.join(workdir, "pretrain")
  swaps = text_files.read_log(os.path.join(run, SWAPS_FILE))
  summary = {
    **figures,
    "generations_swapped": len(swaps) - 1,
    "max_staleness_steps": _max_staleness_steps(swaps, num_steps=num_steps),
    "edited": {
      "questions": edited["questions"],
      "answered_new": round(edited["exact_match"] * edited["questions"]),
    },
  }
  atomic_files.write_json(os.path.join(workdir, "summary.json"), summary)
  rows = text_files.read_log(os.path.join(run, METRICS_FILE))
  _draw_curves(rows, swaps=swaps, output=os.path.join(workdir, "curves.png"))
  return summary


def table(summary: dict) -> str:
  """Returns the figures of a summary as lines of text."""
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
