"""Fine-tuning on questions: its configuration, where it starts, and evaluation on dev questions."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

from realm_jax.answering.answerer import EditableCorpus
from realm_jax.answering.question_answerer import QuestionAnswerer
from realm_jax.answering.span_reader import QuestionModel
from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import answers_digest, read_questions, sampled, texts_digest
from realm_jax.devices.datatypes import Lengths
from realm_jax.evaluation.open_questions import OpenQuestions, score_names
from realm_jax.evaluation.systems import RECALL_AT, Asking, System
from realm_jax.foundations import choices
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.open_qa import OpenQaModel, SpanReaderConfig
from realm_jax.objectives.objective import Objective
from realm_jax.objectives.open_qa import OpenQa
from realm_jax.retrieval.index_refresher import LoadedGeneration, RefreshConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.training.recipes import samples
from realm_jax.training.recipes.examples import QuestionData
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.starts import Start, Starts, sources
from realm_jax.training.run.train_program import TrainProgram
from realm_jax.training.run.training_config import RunConfig, TrainingConfig, changed
from realm_jax.training.run.validation import StoppedError, Validation

_RETRIEVED = 20  # passages retrieved to measure recall
_SHOWN_PASSAGES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
  """Models and the sources of their initial parameters.

  Attributes:
    dual_encoder: The dual encoder; queries have parameters of their own if the passage encoder is
      frozen.
    span_reader: The span reader; all but its BERT is new unless the checkpoint has one.
    passage_length: Passage length that the passage encoder was trained with.
  """

  dual_encoder: EncoderConfig
  span_reader: SpanReaderConfig
  passage_length: int
  starts: tuple[Start, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartConfig(choices.Checked):
  """How a model for questions is built from the initial checkpoints.

  Attributes:
    passage_encoder: "frozen" trains only the query encoder to retrieve, as published; "trained"
      embeds the passages read afresh in every step, and the index follows.
    max_span_width: Maximum wordpieces of an answer.
    span_hidden_size: Width of the MLP that scores spans.
    temperature: Divides the scores; None uses that of the retriever's checkpoint. Embeddings of
      unit length need one far below 1, or their scores differ too little for the softmax.
    dropout_rate: Dropout of both models, in attention as well; None uses the checkpoints' rates.
  """

  passage_encoder: Literal["frozen", "trained"] = "frozen"
  max_span_width: choices.Count = 10
  span_hidden_size: choices.CountOrZero = 256
  temperature: choices.Positive | None = None
  dropout_rate: choices.Rate | None = None

  def find(self, given: Starts) -> StartingPoint:
    """Returns the starting point from the newest checkpoints of one directory or two.

    They may be of different runs, as in REALM's ablation (Guu et al. 2020, table 2).
    """
    of_parts = sources(given, parts=("dual_encoder", "span_reader"))
    retriever, reader = of_parts["dual_encoder"], of_parts["span_reader"]
    description = saved_models.load(retriever).description
    dual_encoder = self._with_dropout(description.dual_encoder)
    if self.temperature is not None:
      dual_encoder = dataclasses.replace(dual_encoder, temperature=self.temperature)
    parts = [("dual_encoder", "dual_encoder")]
    if self.passage_encoder == "frozen":
      # The query encoder will move away from the passage encoder, which built the index.
      dual_encoder, copies = dual_encoder.separated()
      parts = [(f"dual_encoder/{here}", f"dual_encoder/{there}") for here, there in copies.items()]
    reader_part, span_reader = self._reader(saved_models.load(reader).description, source=reader)
    return StartingPoint(
      dual_encoder=dual_encoder,
      span_reader=span_reader,
      passage_length=description.passage_length,
      starts=(Start(retriever, parts), Start(reader, [reader_part])),
    )

  def _reader(
    self, description: saved_models.ModelDescription, *, source: str
  ) -> tuple[tuple[str, str], SpanReaderConfig]:
    if description.span_reader is not None:
      reader = self._with_dropout(description.span_reader)
      reader = dataclasses.replace(reader, max_span_width=self.max_span_width)
      return ("span_reader", "span_reader"), reader
    if description.reading_bert is None:
      raise ValueError(
        f"{source} has no BERT for the span reader to start from; give another reader"
      )
    there, bert = description.reading_bert
    reader = SpanReaderConfig(
      bert=self._with_dropout(bert),
      max_span_width=self.max_span_width,
      span_hidden_size=self.span_hidden_size,
    )
    return ("span_reader/bert", there), reader

  def _with_dropout(self, of_checkpoint: Any) -> Any:
    """Returns a model's configuration with this dropout."""
    if (rate := self.dropout_rate) is None:
      return of_checkpoint
    return changed(of_checkpoint, lambda name, v: rate if name.endswith("dropout_rate") else v)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevConfig(choices.Checked):
  """How dev questions are evaluated during training.

  Attributes:
    eval_every: Steps between evaluations; the last step has one as well.
    max_dev_questions: Samples at most this many; None uses all.
    best_metric: The dev metric that selects the best checkpoint.
  """

  eval_every: choices.Count = 1000
  max_dev_questions: choices.Count | None = None
  best_metric: str = "exact_match"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuning(TrainingConfig):
  """The configuration of a fine-tuning run, except for its directories.

  Attributes:
    data: The questions and how they are batched; the original takes one per step.
    model: How the model is built from the initial checkpoints.
    beam: How many passages are retrieved and read.
    refresh: How new generations are followed if the passage encoder is trained.
    generation: Index generation to stay with. None uses the newest and, if the passage encoder is
      trained, every newer one.
    dev: How dev questions are evaluated.
  """

  run: RunConfig = RunConfig(num_steps=160_000)
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5)
  data: QuestionData = QuestionData()
  model: StartConfig = StartConfig()
  beam: BeamConfig = BeamConfig()
  refresh: RefreshConfig = RefreshConfig()
  generation: choices.CountOrZero | None = None
  dev: DevConfig = DevConfig()
  objective: Objective = OpenQa()

  @property
  def frozen(self) -> bool:
    """Whether the passage encoder, and therefore the index, is frozen."""
    return self.model.passage_encoder == "frozen"

  def check_reachable(self) -> None:
    """Checks that an index that follows can be recent enough; see `RefreshConfig`."""
    if not self.frozen and self.generation is None:
      self.refresh.check_reachable(checkpoint_every=self.run.checkpoint_every)

  def describe(self, store: PassageStore, start: StartingPoint) -> saved_models.ModelDescription:
    """Returns the description of the model and its training data for checkpoints."""
    return saved_models.ModelDescription(
      dual_encoder=start.dual_encoder,
      span_reader=start.span_reader,
      beam=self.beam,
      query_length=self.data.query_length,
      passage_length=start.passage_length,
      vocabulary_digest=store.metadata.vocabulary_digest,
      corpus_fingerprint=store.fingerprint,
    )

  def program(self, model: OpenQaModel, *, lengths: Lengths = ()) -> TrainProgram:
    """Returns the train step and the layout of the train state; see `make_program`."""
    training = self
    if self.frozen:
      frozen = sorted(model.dual_encoder_config.parts("passage"))
      parts = (*self.optimizer.frozen_parts, *(f"dual_encoder/{part}" for part in frozen))
      optimizer = dataclasses.replace(self.optimizer, frozen_parts=parts)
      training = dataclasses.replace(self, optimizer=optimizer)
    init_params = functools.partial(saved_models.init_open_qa_model, model)
    return training.make_program(
      self.objective.build(model),
      init_params=init_params,
      batch_size=self.data.batch_size,
      lengths=lengths,
    )


class QuestionValidation(Validation):
  """Answers dev questions with the current parameters and index generation."""

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
    stop: Callable[[], bool] = lambda: False,
  ):
    dev_questions = sampled(read_questions(questions), config.max_dev_questions)
    recall_at = [k for k in RECALL_AT if k <= _RETRIEVED]
    known = score_names(dev_questions, width=min(_RETRIEVED, len(store)))
    if config.best_metric not in known:
      raise ValueError(f"best_metric={config.best_metric!r}; choose one of {', '.join(known)}")
    self.every, self.metric = config.eval_every, f"dev/{config.best_metric}"
    self.digest = texts_digest(dev_questions) + answers_digest(dev_questions)
    self._questions = OpenQuestions(
      inputs={"dev questions": questions},
      questions=dev_questions,
      asking=Asking(recall_at=recall_at, batch_size=batch_size),
    )
    self._model = model
    self._store, self._loaded, self._passage_length = store, loaded, passage_length
    self._outcomes, self._stop = [], stop

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics, named `dev/...`; raises StoppedError once the run is to stop."""
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

    def answer(*asked, **settings):
      if self._stop():  # thousands of questions take longer than a run has before it is killed
        raise StoppedError
      return answerer.answer(*asked, **settings)

    system = System(self._store, {}, answerer.retrieve, answer)
    self._outcomes = self._questions.ask(system)
    metrics = self._questions.scored(self._outcomes, system).summary()
    return {f"dev/{name}": float(value) for name, value in metrics.items() if name != "groups"}

  def samples(self) -> str:
    """Returns the first questions with their latest answers and best passages as Markdown."""
    return "\n\n".join(
      samples.table(
        outcome.question.text,
        outcome.prediction,
        [*zip(outcome.passage_ids, outcome.scores, strict=True)][:_SHOWN_PASSAGES],
        store=self._store,
      )
      for outcome in self._outcomes[: samples.SAMPLES]
    )
