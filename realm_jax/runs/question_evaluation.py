"""The dev questions, asked again and again while a model trains."""

import random
from collections.abc import Callable

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import read_questions
from realm_jax.evaluation import open_qa
from realm_jax.labels.answer_matching import match_answers
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.retrieval.question_retriever import EmbeddedGeneration
from realm_jax.runs import retrieved_samples
from realm_jax.saved.question_setup import make_predictor, span_reader
from realm_jax.saved.saved_models import ModelDescription
from realm_jax.wordpieces import Tokenizer

_RETRIEVED = 20  # passages looked at for recall
_SHOWN_QUESTIONS, _SHOWN_PASSAGES = 4, 5


class QuestionEvaluation:
  """Answers dev questions with the parameters of a step and the index generation in use.

  Args:
    questions: file of the questions.
    max_questions: of more questions, so many are drawn, always the same ones; None: all are asked.
    model: in training.
    description: of the model.
    store: the knowledge corpus.
    tokenizer: of the model.
    generation: gives the generation in use.
    place: puts a batch on the devices.
    encode_query: `(params, Tokens [B, L]) -> [B, E]`.
    batch_size: questions answered at once.
    answer_rule: see `match_answers`.
    answer_text: see `QuestionPredictor`.
  """

  def __init__(
    self,
    questions: str,
    *,
    max_questions: int | None,
    model: OpenQaModel,
    description: ModelDescription,
    store: PassageStore,
    tokenizer: Tokenizer,
    generation: Callable[[], EmbeddedGeneration],
    place: Callable,
    encode_query: Callable,
    batch_size: int,
    answer_rule: str,
    answer_text: str,
  ):
    asked = read_questions(questions)
    if max_questions is not None and len(asked) > max_questions:
      asked = random.Random(0).sample(asked, max_questions)
    self._questions = asked
    self._matcher = match_answers(
      self._questions, store=store, tokenizer=tokenizer, rule=answer_rule
    )
    self._description = description
    self._store = store
    self._tokenizer = tokenizer
    self._generation = generation
    self._read = span_reader(model, place)
    self._encode_query = encode_query
    self._batch_size = batch_size
    self._answer_text = answer_text
    self._outcomes = []

  def check_metric(self, metric: str) -> None:
    """Checks that a figure will be there.

    Raises:
      ValueError: naming those that will.
    """
    known = open_qa.score_names(self._questions, width=min(_RETRIEVED, len(self._store)))
    if metric not in known:
      raise ValueError(f"best_metric={metric!r}; choose one of {', '.join(known)}")

  def __call__(self, params) -> dict[str, float]:
    """Returns the figures named `dev/...`."""
    predictor = make_predictor(
      params=params,
      read=self._read,
      encode_query=self._encode_query,
      loaded=self._generation(),
      description=self._description,
      store=self._store,
      tokenizer=self._tokenizer,
      batch_size=self._batch_size,
      answer_text=self._answer_text,
    )
    self._outcomes = open_qa.evaluate_questions(
      predictor, self._questions, retrieve_k=_RETRIEVED, batch_size=self._batch_size
    )
    figures = open_qa.figures(self._outcomes, matcher=self._matcher)
    return {
      f"dev/{name}": float(value)
      for name, value in figures.items()
      if isinstance(value, int | float)
    }

  def samples(self) -> str:
    """Returns the first questions, as answered last, with their best passages, as Markdown."""
    return "\n\n".join(
      retrieved_samples.table(
        outcome.question.text,
        outcome.prediction,
        [*zip(outcome.passage_ids, outcome.scores, strict=True)][:_SHOWN_PASSAGES],
        store=self._store,
      )
      for outcome in self._outcomes[:_SHOWN_QUESTIONS]
    )
