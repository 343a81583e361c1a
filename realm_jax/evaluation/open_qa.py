"""Metrics of open-domain question answering: retrieval, reading and answers."""

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from realm_jax.answering.question_answerer import QuestionAnswers, SpanAnswer
from realm_jax.data import answers
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import SearchResults
from realm_jax.evaluation.answer_matching import AnswerMatcher
from realm_jax.foundations import progress
from realm_jax.text import detection

RECALL_AT = (1, 5, 20, 50, 100)
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


def evaluate_questions(
  retrieve: Callable[..., SearchResults],
  questions: Sequence[Question],
  *,
  answer: Callable[..., Sequence[QuestionAnswers]] | None = None,
  retrieve_k: int = max(RECALL_AT),
  batch_size: int = 32,
) -> list[Outcome]:
  """Retrieves passages for all questions, and answers them.

  Args:
    retrieve: Called as `retrieve(texts, k=...)`, finds the best passages; see `QuestionSearch`.
    answer: Called as `answer(texts)`, answers them; None if nothing is read.
  """
  outcomes = []
  batches = [questions[i : i + batch_size] for i in range(0, len(questions), batch_size)]
  for batch in progress.track(batches, what="batches of questions"):
    texts = [question.text for question in batch]
    found = retrieve(texts, k=retrieve_k)
    answers_of_batch = [None] * len(batch) if answer is None else answer(texts)
    for question, ids_K, scores_K, answered in zip(
      batch, found.ids_BxK, found.scores_BxK, answers_of_batch, strict=True
    ):
      real_K = ids_K >= 0
      outcomes.append(
        Outcome(
          question=question,
          passage_ids=tuple(ids_K[real_K].tolist()),
          scores=tuple(scores_K[real_K].tolist()),
          read_ids=answered.passage_ids if answered else (),
          answers=answered.answers if answered else (),
        )
      )
  return outcomes


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
  scores = {
    f"recall@{k}": np.asarray(holds_BxK[:, :k].any(axis=1), np.float64)
    for k in recall_at
    if k <= width
  }
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
  among = detection.languages_of(texts[:: -(-len(texts) // _LANGUAGE_SAMPLE) or 1])
  return [detection.language_of(text, among=among or ("en",)) for text in texts]


def question_groups(
  outcomes: Sequence[Outcome],
  *,
  scores: Mapping[str, np.ndarray],
  train_answers: Iterable[str] | None = None,
) -> dict[str, np.ndarray]:
  """Returns bool `[n]` for each group: the questions' own groups, by retrieval, and by overlap.

  `retrieval_hit` and `retrieval_miss` tell whether a passage read contains an answer; `answer_seen`
  and `answer_unseen` whether a training question has the same normalised answer (Lewis et al. 2021,
  "Question and Answer Test-Train Overlap").

  Args:
    train_answers: Answers of the training questions; None does not tell what was seen.
  """
  groups = own_groups([outcome.question for outcome in outcomes])
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


def own_groups(questions: Sequence[Question]) -> dict[str, np.ndarray]:
  """Returns bool `[n]` for each group that questions name."""
  names = np.array([question.group for question in questions], np.str_)
  return {str(name): names == name for name in np.unique(names) if name}


def summary(
  scores: Mapping[str, np.ndarray], *, groups: Mapping[str, np.ndarray] = types.MappingProxyType({})
) -> dict:
  """Returns the number of questions and the mean of each score, overall and by group."""
  size = len(next(iter(scores.values()), ()))
  result = _means(scores, np.ones(size, bool))
  if groups:
    result["groups"] = {name: _means(scores, members) for name, members in groups.items()}
  return result


def _means(scores: Mapping[str, np.ndarray], members: np.ndarray) -> dict:
  means = {}
  if members.any():
    means = {name: round(float(values[members].mean()), 4) for name, values in scores.items()}
  return {"questions": int(members.sum()), **means}


def _holds(matcher: AnswerMatcher, ids: Sequence[Sequence[int]]) -> np.ndarray:
  ids_BxK = np.full((len(ids), max(map(len, ids), default=0)), -1, np.int64)
  for row, ids_K in zip(ids_BxK, ids, strict=True):
    row[: len(ids_K)] = ids_K
  return matcher.contains(np.arange(len(ids)), ids_BxK)
