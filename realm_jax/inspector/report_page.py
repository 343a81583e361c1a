"""One page on a training that needs nothing but itself: curves, generations, alarms, samples."""

import dataclasses
import importlib.resources
import re
from collections.abc import Mapping, Sequence

from realm_jax.inspector import charts
from realm_jax.inspector.markup import Markup, document, element, join

_PANELS = (
  ("Loss", ("loss/total", "loss/retrieval", "loss/reader")),
  ("Accuracy", ("loss/masked_token_accuracy", "loss/span_accuracy")),
  ("Dev questions", ("dev/exact_match", "dev/f1", "dev/recall@5")),
  (
    "Answers in training",
    ("answers/span_exact_match", "answers/in_passages_read", "answers/in_beam"),
  ),
  ("Retrieval utility (nats a mask)", ("retrieval/retrieval_utility",)),
  (
    "Null mass, entropy of p(z|x), hub share",
    ("retrieval/null_mass", "retrieval/retrieval_entropy", "retrieval/hub_share"),
  ),
  ("Rank correlation, index to fresh scores", ("retrieval/stale_rank_correlation",)),
  ("Staleness of the index (steps)", ("index/staleness_steps",)),
  ("Steps a second", ("throughput/steps_per_second",)),
  (
    "Seconds of a batch",
    (
      "throughput/step_seconds",
      "throughput/search_seconds",
      "throughput/query_embedding_wait_seconds",
    ),
  ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportView:
  """What is reported.

  Attributes:
    title: of the page.
    rows: of `metrics.jsonl`.
    swaps: of `swaps.jsonl`.
    samples: of `samples.jsonl`.
    generations: of each generation still there, `generation`, `training_step` and its scorecard.
    alarms: `name`, `first_step`, `last_step`, `figure` and `cause` of each.
  """

  title: str
  rows: Sequence[Mapping]
  swaps: Sequence[Mapping] = ()
  samples: Sequence[Mapping] = ()
  generations: Sequence[Mapping] = ()
  alarms: Sequence[Mapping] = ()


def rendered(view: ReportView) -> str:
  """Returns the page."""
  style = (importlib.resources.files(__package__) / "static" / "report.css").read_text("utf-8")
  last = view.rows[-1]["step"] if view.rows else 0
  return document(
    title=view.title,
    head=element("style", None, Markup(style)),
    body=element(
      "body",
      None,
      element(
        "header",
        None,
        element("h1", None, view.title),
        element("p", {"class": "note"}, _summary(view, last)),
      ),
      element(
        "main",
        None,
        _alarms(view.alarms),
        _curves(view),
        _generations(view, last),
        _samples(view.samples),
      ),
    ),
  )


def _summary(view: ReportView, last: int) -> str:
  parts = [f"{last:,} steps"]
  if len(view.rows) > 1:
    minutes = (view.rows[-1]["seconds"] - view.rows[0]["seconds"]) / 60
    parts.append(f"{minutes:,.1f} minutes between the first and the last write")
  if view.swaps:
    parts.append(f"{len(view.swaps) - 1} generations swapped in")
  return ", ".join(parts)


def _alarms(alarms: Sequence[Mapping]) -> Markup:
  if not alarms:
    return element("p", {"class": "quiet"}, "No alarm.")
  return element(
    "section",
    {"class": "alarms", "aria-label": "Alarms"},
    *(
      element(
        "article",
        None,
        element("h2", None, alarm["name"]),
        element(
          "p",
          None,
          f"Steps {alarm['first_step']:,} to {alarm['last_step']:,}: {alarm['figure']}.",
        ),
        element("p", None, alarm["cause"], "."),
      )
      for alarm in alarms
    ),
  )


def _curves(view: ReportView) -> Markup:
  swaps = [swap["step"] for swap in view.swaps[1:]]
  panels = [(title, names, [_short(name) for name in names]) for title, names in _PANELS]
  measured = sorted({name for row in view.rows for name in row if name.startswith("eval/")})
  panels += [(f"Evaluation: {_short(name)}", (name,), [_short(name)]) for name in measured]
  return element(
    "section",
    {"class": "charts"},
    *(
      charts.drawn(
        title,
        [
          charts.Curve(label, _points(view.rows, name))
          for label, name in zip(labels, names, strict=True)
        ],
        swaps=swaps,
      )
      for title, names, labels in panels
    ),
  )


def _points(rows: Sequence[Mapping], name: str) -> list[tuple[float, float]]:
  return [(row["step"], row[name]) for row in rows if row.get(name) is not None]


def _short(name: str) -> str:
  return name.rpartition("/")[2].replace("_", " ")


def _generations(view: ReportView, last: int) -> Markup | None:
  if not view.swaps:
    return None
  ends = [swap["step"] for swap in view.swaps[1:]] + [last]
  spans = [
    (swap["generation"], swap["training_step"], swap["step"], end)
    for swap, end in zip(view.swaps, ends, strict=True)
  ]
  return element(
    "section",
    None,
    element("h2", None, "Generations"),
    element(
      "p",
      {"class": "note"},
      "Dot: the step whose parameters embedded the passages. Bar: the steps that searched them.",
    ),
    charts.timeline(spans),
    _scorecards(view.generations),
  )


def _scorecards(generations: Sequence[Mapping]) -> Markup | None:
  names = list(dict.fromkeys(name for one in generations for name in one["scorecard"]))
  if not names:
    return None
  head = ["generation", "of step", *(name.replace("_", " ") for name in names)]
  return element(
    "div",
    {"class": "scroll", "tabindex": 0},
    element(
      "table",
      None,
      element("caption", None, "Scorecards"),
      element(
        "thead",
        None,
        element("tr", None, *(element("th", {"scope": "col"}, name) for name in head)),
      ),
      element(
        "tbody",
        None,
        *(
          element(
            "tr",
            None,
            element("th", {"scope": "row"}, one["generation"]),
            element("td", None, f"{one['training_step']:,}"),
            *(element("td", None, _figure(one["scorecard"].get(name))) for name in names),
          )
          for one in generations
        ),
      ),
    ),
  )


def _figure(value: float | None) -> str:
  return "–" if value is None else f"{value:.3g}"


def _samples(samples: Sequence[Mapping]) -> Markup | None:
  shown = [(row["step"], name, row[name]) for row in samples for name in row if "/" in name]
  if not shown:
    return None
  return element(
    "section",
    {"class": "samples"},
    element("h2", None, "What was retrieved"),
    *(
      element(
        "details",
        {"open": number == len(shown) - 1},
        element("summary", None, f"Step {step:,}"),
        _from_markdown(text),
      )
      for number, (step, _, text) in enumerate(shown)
    ),
  )


def _from_markdown(text: str) -> Markup:
  """Sets the few forms that samples are written in: a bold line and a table of two columns."""
  blocks = []
  for line in text.splitlines():
    cells = re.split(r"(?<!\\)\|", line)
    if len(cells) == 4 and not line.startswith(("|---", "| score")):
      blocks.append(
        element(
          "p",
          {"class": "passage"},
          element("span", {"class": "score"}, _unescaped(cells[1])),
          _unescaped(cells[2]),
        )
      )
    elif line.startswith("**"):
      blocks.append(element("p", {"class": "query"}, _unescaped(line.replace("**", ""))))
  return join(*blocks)


def _unescaped(text: str) -> str:
  text = re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), text.strip())
  return re.sub(r"\\(.)", r"\1", text)
