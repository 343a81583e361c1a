"""Evaluation on dev questions during training."""

import dataclasses
from collections.abc import Callable

from realm_jax import choices
from realm_jax.data.questions import read_questions, sampled
from realm_jax.evaluation import open_qa
from realm_jax.inference.editable_corpus import EditableCorpus
from realm_jax.inference.question_answerer import AnswerText, QuestionAnswerer, QuestionModel
from realm_jax.labels.answer_matching import Rule, match_answers
from realm_jax.runs import retrieved_samples

_RETRIEVED = 20  # passages retrieved to measure recall
_SHOWN_QUESTIONS, _SHOWN_PASSAGES = 4, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevConfig:
  """How dev questions are evaluated during training.

  Attributes:
    eval_every: Steps between evaluations; the last step has one as well.
    max_dev_questions: Samples at most this many; None uses all.
    best_metric: The dev metric that selects the best checkpoint.
    answer_text: "raw" slices answers from the passage; "spaced" separates words from punctuation,
      as the released ORQA does.
  """

  eval_every: int = 1000
  max_dev_questions: int | None = None
  best_metric: str = "exact_match"
  answer_text: AnswerText = "raw"

  def __post_init__(self):
    choices.check_fields(self)
    choices.check_counts(self, "eval_every", "max_dev_questions")


class QuestionEvaluation:
  """Answers dev questions with the current parameters and index generation.

  Attributes:
    metric: The metric that selects the best checkpoint.

  Raises:
    ValueError: If there is no such metric.
  """

  def __init__(
    self,
    questions: str,
    *,
    config: DevConfig,
    model: QuestionModel,
    corpus: Callable[[], EditableCorpus],
    batch_size: int,
    answer_rule: Rule,
  ):
    asked = sampled(read_questions(questions), config.max_dev_questions)
    store, tokenizer = corpus().store, corpus().tokenizer
    known = open_qa.score_names(asked, width=min(_RETRIEVED, len(store)))
    if config.best_metric not in known:
      raise ValueError(f"best_metric={config.best_metric!r}; choose one of {', '.join(known)}")
    self.metric = f"dev/{config.best_metric}"
    self._questions = asked
    self._matcher = match_answers(asked, store=store, tokenizer=tokenizer, rule=answer_rule)
    self._model = model
    self._corpus = corpus
    self._store = store
    self._batch_size = batch_size
    self._config = config
    self._outcomes = []

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics, named `dev/...`."""
    answerer = QuestionAnswerer(
      dataclasses.replace(self._model, params=params),
      self._corpus(),
      batch_size=self._batch_size,
      answer_text=self._config.answer_text,
    )
    self._outcomes = open_qa.evaluate_questions(
      answerer.retrieve,
      self._questions,
      answer=answerer.answer,
      retrieve_k=_RETRIEVED,
      batch_size=self._batch_size,
    )
    figures = open_qa.figures(self._outcomes, matcher=self._matcher)
    return {
      f"dev/{name}": float(value)
      for name, value in figures.items()
      if isinstance(value, int | float)
    }

  def samples(self) -> str:
    """Returns the first questions with their latest answers and best passages as Markdown."""
    return "\n\n".join(
      retrieved_samples.table(
        outcome.question.text,
        outcome.prediction,
        [*zip(outcome.passage_ids, outcome.scores, strict=True)][:_SHOWN_PASSAGES],
        store=self._store,
      )
      for outcome in self._outcomes[:_SHOWN_QUESTIONS]
    )
