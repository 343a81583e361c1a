"""A self-contained page about a training run: curves, generations, alarms and samples."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from realm_jax.web import charts
from realm_jax.web.rendering import render

_PANELS = (
  ("Loss", ("loss/total", "loss/retrieval", "loss/reader")),
  ("Accuracy", ("loss/masked_token_accuracy", "loss/span_accuracy", "loss/null_span_accuracy")),
  ("Dev questions", ("dev/exact_match", "dev/f1", "dev/recall@5")),
  (
    "Answers in training",
    ("answers/span_exact_match", "answers/in_passages_read", "answers/in_beam"),
  ),
  ("Retrieval utility (nats per mask)", ("retrieval/retrieval_utility",)),
  (
    "Null mass, entropy of p(z|x), hub share",
    ("retrieval/null_mass", "retrieval/retrieval_entropy", "retrieval/hub_share"),
  ),
  ("Rank correlation, index to fresh scores", ("retrieval/stale_rank_correlation",)),
  ("Staleness of the index (steps)", ("index/staleness_steps",)),
  ("Steps per second", ("throughput/steps_per_second",)),
  (
    "Seconds per batch, and waiting for devices and data",
    (
      "throughput/step_seconds",
      "throughput/query_embedding_wait_seconds",
      "throughput/data_seconds",
    ),
  ),
  (
    "Seconds per batch on the host",
    ("throughput/search_seconds", "throughput/gather_seconds", "throughput/transfer_seconds"),
  ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportView:
  """The content of a report.

  Attributes:
    rows: Rows of `metrics.jsonl`.
    swaps: Rows of `swaps.jsonl`.
    samples: Rows of `samples.jsonl`.
    alarms: `name`, `first_step`, `last_step`, `figure` and `cause` of each alarm.
  """

  title: str
  rows: Sequence[Mapping]
  swaps: Sequence[Mapping] = ()
  samples: Sequence[Mapping] = ()
  alarms: Sequence[Mapping] = ()


@dataclasses.dataclass(frozen=True)
class _Panel:
  title: str
  curves: Sequence[charts.Curve]
  chart: Markup


def rendered(view: ReportView) -> str:
  """Returns the page."""
  last = view.rows[-1]["step"] if view.rows else 0
  return render(
    "report.html",
    view=view,
    summary=_summary(view, last),
    panels=_panels(view),
    timeline=_timeline(view.swaps, last),
    samples=[
      (row["step"], _from_markdown(text))
      for row in view.samples
      for name, text in row.items()
      if "/" in name
    ],
  )


def _summary(view: ReportView, last: int) -> str:
  parts = [f"{last:,} steps"]
  if len(view.rows) > 1:
    minutes = (view.rows[-1]["seconds"] - view.rows[0]["seconds"]) / 60
    parts.append(f"{minutes:,.1f} minutes between the first and the last write")
  if view.swaps:
    parts.append(f"{len(view.swaps) - 1} generations swapped in")
  return ", ".join(parts)


def _panels(view: ReportView) -> list[_Panel]:
  swaps = [swap["step"] for swap in view.swaps[1:]]
  evaluated = sorted({name for row in view.rows for name in row if name.startswith("eval/")})
  panels = []
  for title, names in (*_PANELS, *((f"Evaluation: {_short(n)}", (n,)) for n in evaluated)):
    curves = [charts.Curve(_short(name), _points(view.rows, name)) for name in names]
    curves = [curve for curve in curves if curve.points]
    if curves:
      panels.append(_Panel(title, curves, charts.draw_curves(title, curves, swaps=swaps)))
  return panels


def _points(rows: Sequence[Mapping], name: str) -> list[tuple[float, float]]:
  return [(row["step"], row[name]) for row in rows if row.get(name) is not None]


def _short(name: str) -> str:
  return name.rpartition("/")[2].replace("_", " ")


def _timeline(swaps: Sequence[Mapping], last: int) -> Markup | None:
  if not swaps:
    return None
  ends = [swap["step"] for swap in swaps[1:]] + [last]
  return charts.draw_timeline(
    [
      charts.GenerationSpan(swap["generation"], swap["training_step"], swap["step"], end)
      for swap, end in zip(swaps, ends, strict=True)
    ]
  )


def _from_markdown(text: str) -> list[tuple[str | None, str]]:
  """Returns the queries and passages of a sample: (score, text), the score None for a query.

  Samples are written as a bold line for the query and a table of two columns for its passages.
  """
  blocks = []
  for line in text.splitlines():
    cells = re.split(r"(?<!\\)\|", line)
    if len(cells) == 4 and not line.startswith(("|---", "| score")):
      blocks.append((_unescaped(cells[1]), _unescaped(cells[2])))
    elif line.startswith("**"):
      blocks.append((None, _unescaped(line.replace("**", ""))))
  return blocks


def _unescaped(text: str) -> str:
  text = re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), text.strip())
  return re.sub(r"\\(.)", r"\1", text)
