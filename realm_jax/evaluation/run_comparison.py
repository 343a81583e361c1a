"""Compares two systems on several sets of questions, question by question."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np

from realm_jax.data.judgements import read_judgements
from realm_jax.data.questions import Question, read_lines
from realm_jax.evaluation import resampling
from realm_jax.evaluation.document_ranking import document_scores, read_run
from realm_jax.evaluation.open_qa import RECALL_AT
from realm_jax.foundations import object_store

Scores = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ComparedFigure:
  """One metric of two systems on one set of questions.

  Attributes:
    comparison: Means, difference, interval and p of this set alone.
    adjusted_p_value: p after Holm's correction for the number of sets.
  """

  name: str
  questions: int
  comparison: resampling.Comparison
  adjusted_p_value: float


def compare_sets(pairs: Sequence[tuple[Scores, Scores]]) -> list[list[ComparedFigure]]:
  """Compares the two systems' common metrics on each set of questions."""
  names = [name for name in pairs[0][0] if all(name in of for pair in pairs for of in pair)]
  compared = {
    n: [resampling.compare(first[n], second[n]) for first, second in pairs] for n in names
  }
  adjusted = {n: resampling.holm([c.p_value for c in found]) for n, found in compared.items()}
  return [
    [
      ComparedFigure(name, len(pairs[place][0][name]), compared[name][place], adjusted[name][place])
      for name in names
    ]
    for place in range(len(pairs))
  ]


def pooled(pairs: Sequence[tuple[Scores, Scores]]) -> tuple[Scores, Scores]:
  """Returns the common metrics of all sets as those of one."""
  names = [name for name in pairs[0][0] if all(name in of for pair in pairs for of in pair)]
  first, second = (
    {name: np.concatenate([pair[which][name] for pair in pairs]) for name in names}
    for which in (0, 1)
  )
  return first, second


def sets_of(path: str) -> list[str]:
  """Returns the folders of the sets that `realm evaluate` wrote, or the path of one set."""
  folder = object_store.absolute(path)
  if not folder.is_dir() or (folder / "predictions.jsonl").exists():
    return [path]
  names = sorted(at.name for at in folder.iterdir() if (at / "predictions.jsonl").exists())
  return [os.path.join(path, name) for name in names] or [path]


def read_pair(first: str, second: str, *, qrels: str | None = None) -> tuple[Scores, Scores]:
  """Reads the scores of two systems on the same questions, in the same order.

  Args:
    first: An output directory of `realm evaluate`, its `predictions.jsonl`, or a TREC run file.
    second: The other system's.
    qrels: Judgements of the queries, for TREC run files.

  Raises:
    FileNotFoundError: If a file is missing.
    ValueError: If the questions differ, or a run file has no judgements.
  """
  one, other = _read(first, qrels), _read(second, qrels)
  ids = [*one]
  if other.keys() != one.keys():
    common = len(other.keys() & one.keys())
    raise ValueError(
      f"{first} has {len(one)} questions, {second} {len(other)}, and {common} have the same id; "
      "compare systems on the same questions"
    )
  return _columns(one, ids), _columns(other, ids)


def _columns(records: Mapping[str, Mapping[str, float]], ids: Sequence[str]) -> Scores:
  return {name: np.array([records[i][name] for i in ids]) for name in records[ids[0]]}


def _read(path: str, qrels: str | None) -> Mapping[str, Mapping[str, float]]:
  """Returns the metrics of each question by its id."""
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(f"no run at {path}")
  if object_store.absolute(path).is_dir():
    path = os.path.join(path, "predictions.jsonl")
  if path.endswith(".jsonl"):
    lines = filter(None, read_lines(path))
    try:
      return {str(record["id"]): record["figures"] for record in map(json.loads, lines)}
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(f"{path} is not what `realm evaluate` writes: {error!r}") from error
  if qrels is None:
    raise ValueError(f"{path} is a run file; give the judgements of its queries with --qrels")
  grades = read_judgements(qrels)
  queries = [Question(id=query, text="", answers=()) for query in grades]
  scores = document_scores(read_run(path), grades, queries, recall_at=RECALL_AT)
  return {
    query.id: {name: float(values[place]) for name, values in scores.items()}
    for place, query in enumerate(queries)
  }
