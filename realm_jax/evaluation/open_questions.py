"""Open-domain question answering: what a system finds and answers, and how well.

Predictions of other programs are scored by the same rules.
"""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from realm_jax.answering.span_reader import QuestionAnswers, SpanAnswer
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import answers
from realm_jax.data.questions import Question, is_missing
from realm_jax.evaluation.answer_matching import AnswerMatcher, match_answers
from realm_jax.evaluation.document_ranking import Run, run_text
from realm_jax.evaluation.ranking_metrics import first_right, recalls
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import RECALL_AT, Asking, System
from realm_jax.foundations import progress, text_files
from realm_jax.text import languages as text_languages

Format = Literal["dpr", "trec"]
_LANGUAGE_SAMPLE = 500  # questions whose languages are those of all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """The outcome of one question.

  Attributes:
    passage_ids: Passages retrieved, best first.
    read_ids: Passages read; empty if nothing was read.
    answers: Answers, best first; empty if nothing was read.
  """

  question: Question
  passage_ids: tuple[int, ...]
  scores: tuple[float, ...]
  read_ids: tuple[int, ...] = ()
  answers: tuple[SpanAnswer, ...] = ()

  @property
  def prediction(self) -> str:
    return self.answers[0].text if self.answers else ""

  def record(self) -> dict:
    """Returns what `predictions.jsonl` says besides the question and its metrics."""
    return {
      **({"prediction": self.prediction} if self.read_ids else {}),
      "answers": [dataclasses.asdict(answer) for answer in self.answers],
      "read_ids": list(self.read_ids),
      "passage_ids": list(self.passage_ids),
      "scores": [round(score, 4) for score in self.scores],
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQuestions:
  """Questions with known answers, as an `Evaluator`.

  Attributes:
    train_answers: Answers of the training questions, to tell those seen in training from others.
    formats: Which files of retrieved passages to write.
  """

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  asking: Asking
  train_answers: Sequence[str] | None = None
  formats: Sequence[Format] = ()

  def evaluate(self, system: System) -> Evaluated:
    return self.scored(self.ask(system), system)

  def ask(self, system: System) -> list[Outcome]:
    """Returns what the system finds for each question, and its answers."""
    outcomes, size = [], self.asking.batch_size
    batches = [self.questions[i : i + size] for i in range(0, len(self.questions), size)]
    for batch in progress.track(batches, what="batches of questions"):
      texts = [question.text for question in batch]
      found = system.retrieve(texts, k=max(self.asking.recall_at))
      answered = [None] * len(batch) if system.answer is None else system.answer(texts)
      rows = zip(batch, found.ids_BxK, found.scores_BxK, answered, strict=True)
      outcomes += itertools.starmap(_outcome, rows)
    return outcomes

  def scored(self, outcomes: Sequence[Outcome], system: System) -> Evaluated:
    """Scores what a system has found and answered."""
    store = system.store
    seen = [i for outcome in outcomes for i in (*outcome.passage_ids, *outcome.read_ids)]
    matcher = match_answers(self.questions, store=store, rows=np.array(seen, np.int64))
    scores = question_scores(outcomes, matcher=matcher, recall_at=self.asking.recall_at)
    files = {}
    if "dpr" in self.formats:
      files["retrieved_dpr.json"] = dpr_json(outcomes, store=store, matcher=matcher)
    if "trec" in self.formats:
      files["retrieved.trec"] = run_text(passage_run(outcomes), tag=system.measured["retriever"])
    return Evaluated(
      measured=system.measured,
      scores=scores,
      questions=self.questions,
      records=[outcome.record() for outcome in outcomes],
      groups=question_groups(outcomes, scores=scores, train_answers=self.train_answers),
      files=files,
    )

  def read(self, predictions: str) -> Evaluated:
    return read_predictions(predictions, self.questions)


def _outcome(
  question: Question, ids_K: np.ndarray, scores_K: np.ndarray, answered: QuestionAnswers | None
) -> Outcome:
  real_K = ids_K >= 0
  return Outcome(
    question=question,
    passage_ids=tuple(ids_K[real_K].tolist()),
    scores=tuple(scores_K[real_K].tolist()),
    read_ids=answered.passage_ids if answered else (),
    answers=answered.answers if answered else (),
  )


def question_scores(
  outcomes: Sequence[Outcome], *, matcher: AnswerMatcher, recall_at: Sequence[int] = RECALL_AT
) -> dict[str, np.ndarray]:
  """Returns each metric by name as `[n]` over the questions.

  `recall@k`: one of the best k passages contains an answer. If passages were read, also
  `reader_oracle`, one of those read does, and the scores of the answer, see `answer_scores`.

  Args:
    outcomes: Outcomes of the matcher's questions, in order.
    recall_at: Values of k; those above the number of passages retrieved are omitted.
  """
  width = max((len(outcome.passage_ids) for outcome in outcomes), default=0)
  holds_BxK = _holds(matcher, [outcome.passage_ids for outcome in outcomes])
  scores = recalls([*map(first_right, holds_BxK)], [k for k in recall_at if k <= width])
  if any(outcome.read_ids for outcome in outcomes):
    read_BxK = _holds(matcher, [outcome.read_ids for outcome in outcomes])
    scores["reader_oracle"] = np.asarray(read_BxK.any(axis=1), np.float64)
    questions = [outcome.question for outcome in outcomes]
    scores |= answer_scores(questions, [outcome.prediction for outcome in outcomes])
  return scores


def score_names(questions: Sequence[Question], *, width: int) -> list[str]:
  """Returns the names in `question_scores` if `width` passages are retrieved and some are read."""
  recalls = [f"recall@{k}" for k in RECALL_AT if k <= width]
  return [*recalls, "reader_oracle", *answer_scores(questions, [""] * len(questions))]


def answer_scores(
  questions: Sequence[Question], predictions: Sequence[str]
) -> dict[str, np.ndarray]:
  """Returns the scores of predicted answers, `[n]` each.

  `exact_match` follows the official rule, `exact_match_corrected` a corrected normalisation (see
  `data.answers`), both in the language of each question; `f1` over words is omitted if an answer is
  a regular expression.
  """
  triples = list(zip(questions, predictions, languages_of(questions), strict=True))
  names: dict[str, answers.Normalization] = {
    "exact_match": "official",
    "exact_match_corrected": "corrected",
  }
  scores = {
    name: np.array(
      [
        answers.exact_match(
          text, q.answers, regex=q.regex, normalization=normalization, language=language
        )
        for q, text, language in triples
      ],
      np.float64,
    )
    for name, normalization in names.items()
  }
  if not any(question.regex for question in questions):
    scores["f1"] = np.array(
      [answers.f1(text, q.answers, language=language) for q, text, language in triples], np.float64
    )
  return scores


def languages_of(questions: Sequence[Question]) -> list[str]:
  """Returns the language of each question, among those that are detected in a sample of them."""
  texts = [question.text for question in questions]
  among = text_languages.languages_of(texts[:: -(-len(texts) // _LANGUAGE_SAMPLE) or 1])
  return [text_languages.language_of(text, among=among or ("en",)) for text in texts]


def question_groups(
  outcomes: Sequence[Outcome],
  *,
  scores: Mapping[str, np.ndarray],
  train_answers: Iterable[str] | None = None,
) -> dict[str, np.ndarray]:
  """Returns bool `[n]` for each group, by retrieval and by overlap.

  `retrieval_hit` and `retrieval_miss` tell whether a passage read contains an answer; `answer_seen`
  and `answer_unseen` whether a training question has the same normalised answer (Lewis et al. 2021,
  "Question and Answer Test-Train Overlap").

  Args:
    train_answers: Answers of the training questions; None does not tell what was seen.
  """
  groups = {}
  if "reader_oracle" in scores:
    hit = scores["reader_oracle"] > 0
    groups |= {"retrieval_hit": hit, "retrieval_miss": ~hit}
  if train_answers is not None:
    train_answers = [*train_answers]
    languages = languages_of([outcome.question for outcome in outcomes])
    normalize = {language: answers.normalizer(language, "official") for language in languages}
    known = {language: {*map(rule, train_answers)} for language, rule in normalize.items()}
    seen = np.array(
      [
        any(normalize[language](answer) in known[language] for answer in outcome.question.answers)
        for outcome, language in zip(outcomes, languages, strict=True)
      ]
    )
    groups |= {"answer_seen": seen, "answer_unseen": ~seen}
  return groups


def _holds(matcher: AnswerMatcher, ids: Sequence[Sequence[int]]) -> np.ndarray:
  ids_BxK = np.full((len(ids), max(map(len, ids), default=0)), -1, np.int64)
  for row, ids_K in zip(ids_BxK, ids, strict=True):
    row[: len(ids_K)] = ids_K
  return matcher.contains(np.arange(len(ids)), ids_BxK)


def passage_run(outcomes: Iterable[Outcome]) -> Run:
  """Returns the passages retrieved for each question, in place of documents."""
  return {
    outcome.question.id: dict(zip(map(str, outcome.passage_ids), outcome.scores, strict=True))
    for outcome in outcomes
  }


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
  for row, outcome in enumerate(outcomes):
    ids_1xK = np.array([outcome.passage_ids], np.int64)
    (holds_K,) = matcher.contains(np.array([row]), ids_1xK)
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


def read_predictions(path: str | os.PathLike, questions: Sequence[Question]) -> Evaluated:
  """Returns the evaluation of a prediction file; questions without a prediction count as wrong.

  A line identifies its question by `id`, `question` or both, which must agree; the `question` of a
  masked sentence is its masked text. Its metrics are those written by `realm evaluate` (`figures`),
  or else those of `prediction`, another program's answer, null if it has none.

  Raises:
    ValueError: If a line is not a prediction or contradicts another, or none of the questions is
      predicted.
  """
  by_id: collections.defaultdict[str, list[dict]] = collections.defaultdict(list)
  by_text: collections.defaultdict[str, list[dict]] = collections.defaultdict(list)
  for number, line in enumerate(text_files.read_lines(path), 1):
    if not line.strip():
      continue
    try:
      record = _prediction(text_files.parse_json(line))
      id, text = record["id"], record["question"]
      before = [other for other in (by_id[id] if id else by_text[text]) if other != record]
      if any((other["id"], other["question"]) == (id, text) for other in before):
        raise ValueError("another prediction of the same question")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not a prediction: {line[:80]}; write JSON with "
        f"`prediction` (a text or null), and `question` or `id`, once a question ({error})"
      ) from error
    by_id[id].append(record)
    by_text[text].append(record)

  def find(question: Question) -> dict:
    # Ids are often line numbers, which differ between files.
    asked = ("", text := question.masked_text)
    found = [record for record in by_id[question.id] if record["question"] in asked]
    first, *others = found or by_text[text] or [{}]
    for other in others:
      if {**first, "id": "", "question": ""} != {**other, "id": "", "question": ""}:
        raise ValueError(
          f"{os.fspath(path)} has several predictions of {text!r}; give the `id` of its question"
        )
    return first

  found = [find(question) for question in questions]
  missing = sum(not record for record in found)
  if missing == len(questions):
    raise ValueError(f"{os.fspath(path)} predicts none of the {len(questions)} questions")
  metrics = [record["figures"] for record in found if "figures" in record]
  if 0 < len(metrics) < len(questions) - missing:
    raise ValueError(
      f"{os.fspath(path)} has `figures` of {len(metrics)} questions and only a `prediction` of "
      f"{len(questions) - missing - len(metrics)} others; leave out the `figures`"
    )
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
    questions=questions,
  )


def _prediction(record: dict) -> dict:
  """Returns a prediction with its `id` and `question`, "" if missing, and text or `figures`."""
  id, question = ("" if is_missing(v) else str(v) for v in map(record.get, ("id", "question")))
  if not id and not question:
    raise ValueError("neither `id` nor `question`")
  if "figures" in record:
    figures = {name: float(value) for name, value in record["figures"].items()}
    if not np.isfinite([*figures.values()]).all():
      raise ValueError("metrics that are no numbers")
    return {"id": id, "question": question, "figures": figures}
  prediction = record["prediction"]
  prediction = "" if is_missing(prediction) else prediction
  if isinstance(prediction, bool) or not isinstance(prediction, str | int | float):
    raise ValueError(f"`prediction` is {prediction!r}")
  return {"id": id, "question": question, "prediction": str(prediction)}
