"""The result of an evaluation: the metrics, and exactly what they were measured on, as a card."""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence

import numpy as np

from realm_jax import __version__
from realm_jax.data.questions import Question
from realm_jax.evaluation import resampling
from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import DirectoryKind

EVALUATION = DirectoryKind(
  name="an evaluation",
  files=(
    *("figures.json", "card.md", "predictions.jsonl", "run.trec"),
    *("retrieved_dpr.json", "retrieved.trec", "evaluations.jsonl"),
    "*/",  # other results may be in folders below it
  ),
  marks=("figures.json", "*/figures.json", "evaluations.jsonl"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
  """What an evaluation found.

  Attributes:
    measured: What was measured.
    scores: Each metric by name, `[n]` over the questions.
    records: What was found for each question; empty if that is not known.
    groups: Members of further groups than those that questions name, bool `[n]`.
    files: Contents of further files by name.
  """

  measured: Mapping[str, str | int]
  scores: Mapping[str, np.ndarray]
  questions: Sequence[Question]
  records: Sequence[Mapping] = ()
  groups: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  files: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def predictions(self) -> str:
    """Returns each question with what was found and its metrics, as JSON Lines."""
    lines = []
    for row, question in enumerate(self.questions):
      record = {
        "id": question.id,
        "question": question.masked_text,
        "reference": list(question.answers),
        **(self.records[row] if self.records else {}),
        "figures": {name: round(float(values[row]), 6) for name, values in self.scores.items()},
      }
      lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines)

  def summary(self) -> dict:
    """Returns the number of questions and the mean of each score, overall and by group."""
    names = np.array([question.group for question in self.questions], np.str_)
    groups = {str(name): names == name for name in np.unique(names) if name} | {**self.groups}
    result = self._means(np.ones(len(names), bool))
    if groups:
      result["groups"] = {name: self._means(members) for name, members in groups.items()}
    return result

  def _means(self, members: np.ndarray) -> dict:
    means = {}
    if members.any():
      means = {name: round(float(of[members].mean()), 4) for name, of in self.scores.items()}
    return {"questions": int(members.sum()), **means}


def publish(
  evaluated: Evaluated,
  *,
  inputs: Mapping[str, str],
  output: str | None,
) -> dict:
  """Prints the card, writes it with the other files of an evaluation, and returns the metrics.

  Args:
    inputs: Paths of the files that the questions come from, by name; the card has their digests.
    output: Directory for `figures.json`, `card.md` and the other files; None only prints.
  """
  digests = {name: f"{path} (SHA-256 {_digest(path)})" for name, path in inputs.items()}
  code = {"code": _source_version()}
  card = {
    "measured": {**evaluated.measured, **digests, **code},
    "figures": evaluated.summary(),
    "intervals": resampling.bootstrap_intervals(evaluated.scores),
  }
  page = markdown(card)
  if output is not None:
    EVALUATION.check(output)
    files = {
      "figures.json": json.dumps(card, indent=2) + "\n",
      "card.md": page,
      "predictions.jsonl": evaluated.predictions(),
      **evaluated.files,
    }
    for name, text in files.items():
      atomic_files.write_text(os.path.join(output, name), text)
  print(page, flush=True)
  return card["figures"]


def _digest(path: str) -> str:
  return hashlib.sha256(object_store.absolute(path).read_bytes()).hexdigest()[:12]


def _source_version() -> str:
  """Returns the package's version and, of a checkout, the commit, marked if it has changes."""
  root = pathlib.Path(__file__).resolve().parents[2]
  if not (root / ".git").exists():
    return __version__
  try:
    described = subprocess.run(
      ("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"),
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):
    return __version__
  return f"{__version__} ({described.stdout.strip()})"


def markdown(card: Mapping) -> str:
  """Returns the card as Markdown.

  Args:
    card: `measured` (what was evaluated: strings and numbers by name), `figures` from
      `Evaluated.summary`, and `intervals` by metric.
  """
  metrics = dict(card["figures"])
  groups = metrics.pop("groups", {})
  lines = ["# Evaluation", "", "| | |", "|---|---|"]
  lines += [f"| {_words(name)} | {_cell(value)} |" for name, value in card["measured"].items()]
  lines += ["", "| figure | value | 95 % interval |", "|---|---|---|"]
  for name, value in metrics.items():
    interval = " to ".join(f"{bound:.4f}" for bound in card["intervals"].get(name, ()))
    lines.append(_row(_words(name), _cell(value), interval))
  if groups:
    names = [name for name in metrics if any(name in of for of in groups.values())]
    lines += ["", _row("group", *map(_words, names)), "|---" * (len(names) + 1) + "|"]
    lines += [
      _row(_words(group), *(_cell(values.get(name, "")) for name in names))
      for group, values in groups.items()
    ]
  return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
  return f"| {' | '.join(cells)} |"


def _words(name: str) -> str:
  return name.replace("_", " ")


def _cell(value) -> str:
  return f"{value:.4f}" if isinstance(value, float) else str(value).replace("|", "\\|")
