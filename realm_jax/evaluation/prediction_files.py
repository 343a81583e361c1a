"""Predictions as JSON Lines: what `realm evaluate` says of a question, and what it reads."""

import json
import os
from collections.abc import Sequence

import numpy as np

from realm_jax.data.questions import Question
from realm_jax.evaluation.open_qa import answer_scores
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.foundations import object_store


def question_record(question: Question) -> dict:
  """Returns what every prediction says of its question."""
  return {"id": question.id, "question": question.text, "reference": list(question.answers)}


def read(path: str | os.PathLike, questions: Sequence[Question]) -> Evaluated:
  """Returns the evaluation of a prediction file; questions without a prediction count as wrong.

  A line identifies its question by `id`, `question` or both, which must agree. Its metrics are
  those written by `realm evaluate` (`figures`), or else those of `prediction`, another program's
  answer.

  Raises:
    ValueError: If a line is not a prediction, or none of the questions is predicted.
  """
  by_id: dict[str, dict] = {}
  by_text: dict[str, dict] = {}
  with object_store.absolute(path).open("rb") as file:
    for number, line in enumerate(file, 1):
      try:
        record = json.loads(line)
        if "figures" not in record:
          record["prediction"] = str(record["prediction"])
        if "id" in record:
          by_id[str(record["id"])] = record
        if "question" in record or "id" not in record:
          by_text[str(record["question"])] = record
      except (ValueError, KeyError, TypeError) as error:
        shown = line[:80].decode(errors="replace").rstrip()
        raise ValueError(
          f"{os.fspath(path)}, line {number} is not a prediction: {shown}; write JSON with "
          "`prediction`, and `question` or `id`"
        ) from error

  def find(question: Question) -> dict:
    record = by_id.get(question.id)
    # Ids are often line numbers, which differ between files.
    if record is not None and record.get("question", question.text) == question.text:
      return record
    return by_text.get(question.text, {})

  found = [find(question) for question in questions]
  missing = sum(not record for record in found)
  if missing == len(questions):
    raise ValueError(f"{os.fspath(path)} predicts none of the {len(questions)} questions")
  metrics = [record["figures"] for record in found if "figures" in record]
  if metrics:
    common = [name for name in metrics[0] if all(name in m for m in metrics)]
    scores = {
      name: np.array([r.get("figures", {}).get(name, 0.0) for r in found], np.float64)
      for name in common
    }
  else:
    scores = answer_scores(questions, [record.get("prediction", "") for record in found])
  return Evaluated(
    measured={"predictions": os.fspath(path), "missing predictions": missing},
    scores=scores,
    records=[question_record(question) for question in questions],
  )
