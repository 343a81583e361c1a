"""Evaluation on dev questions during training."""

import dataclasses
from collections.abc import Callable

from realm_jax.answering.editable_corpus import EditableCorpus
from realm_jax.answering.question_answerer import QuestionAnswerer, QuestionModel
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import read_questions, sampled
from realm_jax.evaluation import open_qa
from realm_jax.evaluation.open_questions import OpenQuestions
from realm_jax.evaluation.systems import Asking, System
from realm_jax.foundations import choices
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training import retrieved_samples

_RETRIEVED = 20  # passages retrieved to measure recall
_SHOWN_QUESTIONS, _SHOWN_PASSAGES = 4, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevConfig:
  """How dev questions are evaluated during training.

  Attributes:
    eval_every: Steps between evaluations; the last step has one as well.
    max_dev_questions: Samples at most this many; None uses all.
    best_metric: The dev metric that selects the best checkpoint.
  """

  eval_every: int = 1000
  max_dev_questions: int | None = None
  best_metric: str = "exact_match"

  def __post_init__(self):
    choices.check_counts(self, "eval_every", "max_dev_questions")


class QuestionEvaluation:
  """Answers dev questions with the current parameters and index generation.

  Args:
    loaded: Returns the generation to search.

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
    store: PassageStore,
    loaded: Callable[[], LoadedGeneration],
    passage_length: int,
    batch_size: int,
  ):
    dev_questions = sampled(read_questions(questions), config.max_dev_questions)
    recall_at = [k for k in open_qa.RECALL_AT if k <= _RETRIEVED]
    known = open_qa.score_names(dev_questions, width=min(_RETRIEVED, len(store)))
    if config.best_metric not in known:
      raise ValueError(f"best_metric={config.best_metric!r}; choose one of {', '.join(known)}")
    self.metric = f"dev/{config.best_metric}"
    self._questions = OpenQuestions(
      inputs={"dev questions": questions},
      questions=dev_questions,
      asking=Asking(recall_at=recall_at, batch_size=batch_size),
    )
    self._model = model
    self._store, self._loaded, self._passage_length = store, loaded, passage_length
    self._outcomes = []

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics, named `dev/...`."""
    answerer = QuestionAnswerer(
      dataclasses.replace(self._model, params=params),
      EditableCorpus(
        store=self._store,
        loaded=self._loaded(),
        tokenizer=self._store.tokenizer,
        passage_length=self._passage_length,
      ),
      batch_size=self._questions.asking.batch_size,
    )
    system = System(self._store, {}, answerer.retrieve, answerer.answer)
    self._outcomes = self._questions.ask(system)
    scores = self._questions.scored(self._outcomes, system).scores
    return {f"dev/{name}": float(value) for name, value in open_qa.summary(scores).items()}

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
