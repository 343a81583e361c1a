"""Prediction files for other programs: JSON Lines and DPR's JSON."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question
from realm_jax.evaluation.answer_matching import AnswerMatcher
from realm_jax.evaluation.open_qa import Outcome, answer_scores
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.foundations import object_store


def scored(
  questions: Sequence[Question],
  scores: Mapping[str, np.ndarray],
  more: Sequence[Mapping] | None = None,
) -> str:
  """Returns JSON Lines with the metrics of each question, and with `more` fields."""
  lines = []
  for place, question in enumerate(questions):
    record = {
      "id": question.id,
      "question": question.text,
      "reference": list(question.answers),
      "figures": {name: round(float(values[place]), 4) for name, values in scores.items()},
      **(more[place] if more is not None else {}),
    }
    lines.append(json.dumps(record, ensure_ascii=False) + "\n")
  return "".join(lines)


def answered(outcomes: Sequence[Outcome], *, scores: Mapping[str, np.ndarray]) -> str:
  """Returns JSON Lines with the answers, passages and metrics of each question."""
  more = [
    {
      **({"prediction": outcome.prediction} if outcome.read_ids else {}),
      "answers": [dataclasses.asdict(answer) for answer in outcome.answers],
      "read_ids": list(outcome.read_ids),
      "passage_ids": list(outcome.passage_ids),
      "scores": [round(score, 4) for score in outcome.scores],
    }
    for outcome in outcomes
  ]
  return scored([outcome.question for outcome in outcomes], scores, more)


def dpr_json(
  outcomes: Sequence[Outcome],
  *,
  store: PassageStore,
  matcher: AnswerMatcher,
) -> str:
  """Returns the retrieved passages in the format of Dense Passage Retrieval.

  Args:
    outcomes: Outcomes of the matcher's questions, in order.
  """
  records = []
  for place, outcome in enumerate(outcomes):
    ids_1xK = np.array([outcome.passage_ids], np.int64)
    (holds_K,) = matcher.contains(np.array([place]), ids_1xK)
    records.append(
      {
        "question": outcome.question.text,
        "answers": list(outcome.question.answers),
        "ctxs": [
          {
            "id": str(passage_id),
            "title": store.title(passage_id),
            "text": store.text(passage_id),
            "score": str(score),
            "has_answer": holds,
          }
          for passage_id, score, holds in zip(
            outcome.passage_ids, outcome.scores, holds_K.tolist(), strict=True
          )
        ],
      }
    )
  return json.dumps(records, ensure_ascii=False, indent=1) + "\n"


@dataclasses.dataclass(frozen=True)
class PredictionScores:
  """Scores of a prediction file.

  Attributes:
    scores: Each metric by name, `[n]` over the questions.
    missing: Number of questions without a prediction, which count as wrong.
  """

  scores: dict[str, np.ndarray]
  missing: int


def read_scores(path: str | os.PathLike, questions: Sequence[Question]) -> PredictionScores:
  """Reads the scores of questions from a prediction file.

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
  figures = [record["figures"] for record in found if "figures" in record]
  if figures:
    common = [name for name in figures[0] if all(name in f for f in figures)]
    scores = {
      name: np.array([r.get("figures", {}).get(name, 0.0) for r in found], np.float64)
      for name in common
    }
  else:
    scores = answer_scores(questions, [record.get("prediction", "") for record in found])
  return PredictionScores(scores, missing)


def read(path: str, questions: Sequence[Question]) -> Evaluated:
  """Returns the evaluation of a prediction file."""
  found = read_scores(path, questions)
  return Evaluated(
    measured={"predictions": path, "missing predictions": found.missing},
    scores=found.scores,
    files={"predictions.jsonl": scored(questions, found.scores)},
  )
