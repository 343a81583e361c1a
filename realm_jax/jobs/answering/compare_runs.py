"""Compares two systems on one or several sets of questions, with Holm's correction."""

import dataclasses
import json
from collections.abc import Sequence

from realm_jax.evaluation.run_comparison import (
  ComparedFigure,
  compare_sets,
  pooled,
  read_pair,
  sets_of,
)
from realm_jax.foundations import atomic_files
from realm_jax.foundations.output_kinds import FileKind

_TABLE = FileKind(name="a table of comparisons", start=r'\[\s*\{\s*"first": ')


def compare_runs(
  *,
  first: Sequence[str],
  second: Sequence[str],
  qrels: Sequence[str] = (),
  figures: Sequence[str] = (),
  output: str | None = None,
) -> list[dict]:
  """Compares question by question: difference, 95 % bootstrap interval, paired randomisation test.

  Several sets are compared one by one and, in the last rows, pooled.

  Args:
    first: An output directory of `realm evaluate`, with one set of questions or several; or for
      each set its directory, its `predictions.jsonl`, or a TREC run file.
    second: The same for the other system.
    qrels: For each set, its judgements, needed only for TREC run files.
    figures: Metrics to compare; empty compares all that both have.
    output: File for the table as JSON; None only prints.

  Raises:
    FileNotFoundError: If a file is missing.
    ValueError: If the two do not have the same questions.
  """
  if output is not None:
    _TABLE.check(output)
  first, second = ([at for path in paths for at in sets_of(path)] for paths in (first, second))
  if not len(first) == len(second) or (qrels and len(qrels) != len(first)):
    raise ValueError(
      f"first has {len(first)} sets, second {len(second)}, and qrels {len(qrels)}; give "
      "equally many of each"
    )
  pairs = [
    read_pair(*paths, qrels=judged)
    for *paths, judged in zip(first, second, qrels or [None] * len(first), strict=True)
  ]
  compared_sets = [*zip(first, second, compare_sets(pairs), strict=True)]
  if len(pairs) > 1:
    compared_sets.append(("all sets", "all sets", compare_sets([pooled(pairs)])[0]))
  rows = [
    {"first": a, "second": b, **_row(compared)}
    for a, b, of_set in compared_sets
    for compared in of_set
    if not figures or compared.name in figures
  ]
  if not rows:
    raise ValueError(f"no metric is in all files{f' and in {list(figures)}' * bool(figures)}")
  print(_table(rows), flush=True)
  if output is not None:
    atomic_files.write_text(output, json.dumps(rows, indent=2) + "\n", kind=_TABLE)
  return rows


def _row(compared: ComparedFigure) -> dict:
  means = dataclasses.asdict(compared.comparison)
  return {
    "figure": compared.name,
    "questions": compared.questions,
    "mean": means.pop("first"),
    "other_mean": means.pop("second"),
    **means,
    "holm_p_value": compared.adjusted_p_value,
  }


def _table(rows: Sequence[dict]) -> str:
  lines = [
    "| first | second | questions | figure | first | second | difference | 95 % | p | Holm |",
    "|---|---|---|---|---|---|---|---|---|---|",
  ]
  lines += [
    f"| {row['first']} | {row['second']} | {row['questions']} | {row['figure']} "
    f"| {row['mean']:.4f} | {row['other_mean']:.4f} | {row['difference']:+.4f} "
    f"| {row['interval'][0]:+.4f} to {row['interval'][1]:+.4f} "
    f"| {row['p_value']:.4f} | {row['holm_p_value']:.4f} |"
    for row in rows
  ]
  return "\n".join(lines)
