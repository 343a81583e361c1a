"""Renders the result card of an evaluation: the metrics, and exactly what they were measured on."""

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np

from realm_jax import object_store
from realm_jax.evaluation import open_qa, resampling, source_version


def files(**paths: str) -> dict[str, str]:
  """Describes files for a card, by path and digest."""
  described = {}
  for name, path in paths.items():
    content = object_store.absolute(path).read_bytes()
    described[name] = f"{path} (SHA-256 {hashlib.sha256(content).hexdigest()[:12]})"
  return described


def make(
  measured: Mapping[str, str | int],
  scores: Mapping[str, np.ndarray],
  *,
  groups: Mapping[str, np.ndarray] | None = None,
) -> dict:
  """Returns a card.

  Args:
    scores: Each metric by name, `[n]` over the questions.
    groups: Members of each group of questions by name, bool `[n]`.
  """
  return {
    "measured": {**measured, "code": source_version.source_version()},
    "figures": open_qa.summary(scores, groups=groups or {}),
    "intervals": resampling.bootstrap_intervals(scores),
  }


def against(
  compared: str, scores: Mapping[str, np.ndarray], other_scores: Mapping[str, np.ndarray]
) -> dict:
  """Returns the section of a card that compares with another system, question by question."""
  return {
    "predictions": compared,
    "figures": {
      name: dataclasses.asdict(resampling.compare(values, other_scores[name]))
      for name, values in scores.items()
      if name in other_scores
    },
  }


def markdown(card: Mapping) -> str:
  """Returns the card as Markdown.

  Args:
    card: `measured` (what was evaluated: strings and numbers by name), `figures` from
      `open_qa.summary`, `intervals` by metric, and optionally `against`: `measured` and the
      comparison of each metric.
  """
  figures = dict(card["figures"])
  groups = figures.pop("groups", {})
  lines = ["# Evaluation", "", "| | |", "|---|---|"]
  lines += [f"| {_words(name)} | {_cell(value)} |" for name, value in card["measured"].items()]
  lines += ["", "| figure | value | 95 % interval |", "|---|---|---|"]
  for name, value in figures.items():
    interval = card["intervals"].get(name)
    lines.append(f"| {_words(name)} | {_cell(value)} | {_interval(interval) if interval else ''} |")
  if groups:
    names = [name for name in figures if any(name in of for of in groups.values())]
    lines += ["", _row("group", *map(_words, names)), "|---" * (len(names) + 1) + "|"]
    lines += [
      _row(_words(group), *(_cell(values.get(name, "")) for name in names))
      for group, values in groups.items()
    ]
  if "against" in card:
    lines += ["", f"Against {card['against']['predictions']}, question by question:", ""]
    lines += ["| figure | this | that | difference | 95 % interval | p |", "|---" * 6 + "|"]
    lines += [
      _row(
        _words(name),
        _cell(c["first"]),
        _cell(c["second"]),
        f"{c['difference']:+.4f}",
        _interval(c["interval"]),
        f"{c['p_value']:.4f}",
      )
      for name, c in card["against"]["figures"].items()
    ]
  return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
  return f"| {' | '.join(cells)} |"


def _words(name: str) -> str:
  return name.replace("_", " ")


def _cell(value) -> str:
  return f"{value:.4f}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _interval(interval) -> str:
  return f"{interval[0]:.4f} to {interval[1]:.4f}"
