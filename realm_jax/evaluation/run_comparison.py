"""Compares two evaluations question by question, on one or several sets of questions."""

import collections
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from realm_jax.evaluation import resampling
from realm_jax.foundations import object_store, text_files

Scores = Mapping[str, np.ndarray]


def compare(first: str, second: str) -> str:
  """Compares the metrics that both have, in a table.

  Each set of questions has rows of its own, whose p is corrected for the number of sets (Holm
  1979); the last rows of several sets are those of all questions together.

  Args:
    first: An output directory of `realm evaluate`, with one set of questions or several.
    second: That of another system, asked the same.

  Returns:
    A Markdown table: means, difference, 95 % bootstrap interval, p of a paired randomisation test.
  """
  sets = sets_of(first)
  pairs = [_same_questions(os.path.join(first, name), os.path.join(second, name)) for name in sets]
  names = [name for name in pairs[0][0] if all(name in of for pair in pairs for of in pair)]
  if not names:
    raise ValueError(f"{first} and {second} have no metric in common")
  lines = [
    "| questions | metric | first | second | difference | 95 % interval | p | Holm |",
    "|---|---|---|---|---|---|---|---|",
  ]
  compared = {n: [resampling.compare(one[n], other[n]) for one, other in pairs] for n in names}
  adjusted = {n: resampling.holm([c.p_value for c in found]) for n, found in compared.items()}
  for row, (one, _) in enumerate(pairs):
    of = f"{sets[row]} {len(one[names[0]])}".strip()
    lines += [_line(of, n, compared[n][row], adjusted[n][row]) for n in names]
  if len(pairs) > 1:
    for n in names:
      one, other = (np.concatenate([pair[which][n] for pair in pairs]) for which in (0, 1))
      pooled = resampling.compare(one, other)
      lines.append(_line(f"all {len(one)}", n, pooled, pooled.p_value))
  return "\n".join(lines)


def _line(questions: str, metric: str, found: resampling.Comparison, adjusted: float) -> str:
  return (
    f"| {questions} | {metric} | {found.first:.4f} | {found.second:.4f} | {found.difference:+.4f} "
    f"| {found.interval[0]:+.4f} to {found.interval[1]:+.4f} | {found.p_value:.4f} "
    f"| {adjusted:.4f} |"
  )


def sets_of(directory: str) -> Sequence[str]:
  """Returns the names of the sets of questions in a directory; "" is the directory itself."""
  folder = object_store.absolute(directory)
  if (folder / "predictions.jsonl").exists():
    return [""]
  if not folder.is_dir():
    raise FileNotFoundError(f"no evaluation at {directory}; give an --output of `realm evaluate`")
  names = sorted(at.name for at in folder.iterdir() if (at / "predictions.jsonl").exists())
  if not names:
    raise FileNotFoundError(f"no predictions.jsonl in {directory} or a folder in it")
  return names


def _same_questions(first: str, second: str) -> tuple[Scores, Scores]:
  """Reads the metrics of two systems, question by question in the same order."""
  one, other = _read(first), _read(second)
  if other.keys() != one.keys():
    common = len(other.keys() & one.keys())
    raise ValueError(
      f"{first} has {len(one)} questions, {second} {len(other)}, and {common} have the same id; "
      "compare systems on the same questions"
    )
  return _columns(one.values()), _columns(other[id] for id in one)


def _columns(records: Iterable[Mapping[str, float]]) -> Scores:
  """Returns the metrics that all questions have."""
  first, *others = records
  names = [name for name in first if all(name in record for record in others)]
  return {name: np.array([record[name] for record in (first, *others)]) for name in names}


def _read(directory: str) -> Mapping[tuple, Mapping[str, float]]:
  """Returns the metrics of each question by its id and text, in order if several have the same."""
  path = os.path.join(directory, "predictions.jsonl")
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(
      f"no {path}; give an --output of `realm evaluate` on the same questions"
    )
  try:
    lines = text_files.read_lines(path)
    records = [text_files.parse_json(line) for line in lines if line.strip()]
    found, seen = {}, collections.Counter()
    for record in records:
      key = (str(record["id"]), record.get("question"))
      figures = {name: float(value) for name, value in record["figures"].items()}
      if not np.isfinite([*figures.values()]).all():
        raise ValueError(f"{key[0]} has metrics that are no numbers")
      found[*key, seen[key]] = figures
      seen[key] += 1
    return found
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f"{path} is not what `realm evaluate` writes: {error!r}") from error
