"""Draws the curves of a pre-training run, and the steps at which generations were swapped in."""

from collections.abc import Sequence

import matplotlib.figure

_PANELS = (
  ("loss", ("loss/total",)),
  ("accuracy", ("loss/masked_token_accuracy", "loss/span_accuracy", "loss/null_span_accuracy")),
  ("retrieval utility (nats)", ("retrieval/retrieval_utility",)),
  ("null mass and entropy of p(z|x)", ("retrieval/null_mass", "retrieval/retrieval_entropy")),
  ("rank correlation, stale to fresh", ("retrieval/stale_rank_correlation",)),
  ("staleness (steps)", ("index/staleness_steps",)),
)


def draw(metrics: Sequence[dict], *, swaps: Sequence[dict], output: str) -> None:
  """Plots the metrics over steps.

  Args:
    metrics: Lines of `metrics.jsonl`.
    swaps: Lines of `swaps.jsonl`; each becomes a dotted line.
    output: Path of a PNG to write.
  """
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
