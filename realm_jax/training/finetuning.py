"""The configuration of fine-tuning on questions, and its model and loss."""

import dataclasses
import functools

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.objectives.objective import Objective
from realm_jax.objectives.open_qa import OpenQa
from realm_jax.retrieval.index_refresher import RefreshConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.training.examples import QuestionData
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.question_evaluation import DevConfig
from realm_jax.training.starting_points import StartConfig, StartingPoint
from realm_jax.training.train_program import TrainProgram
from realm_jax.training.training_config import RunConfig, TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuning(TrainingConfig):
  """The configuration of a fine-tuning run, except for its directories.

  Attributes:
    data: The questions and how they are batched; the original takes one per step.
    start: How the model is built from the initial checkpoints.
    beam: How many passages are retrieved and read.
    refresh: How new generations are followed if the passage encoder is trained.
    generation: Index generation to stay with. None uses the newest and, if the passage encoder is
      trained, every newer one.
    dev: How dev questions are evaluated.
  """

  run: RunConfig = RunConfig(num_steps=160_000)
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5)
  data: QuestionData = QuestionData()
  start: StartConfig = StartConfig()
  beam: BeamConfig = BeamConfig()
  refresh: RefreshConfig = RefreshConfig()
  generation: int | None = None
  dev: DevConfig = DevConfig()
  objective: Objective = OpenQa()

  @property
  def frozen(self) -> bool:
    """Whether the passage encoder, and therefore the index, is frozen."""
    return self.start.passage_encoder == "frozen"

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

  def program(self, model: OpenQaModel) -> TrainProgram:
    """Returns the train step and the layout of the train state."""

    training = self
    if self.frozen:
      frozen = sorted(model.dual_encoder_config.parts("passage"))
      parts = (*self.optimizer.frozen_parts, *(f"dual_encoder/{part}" for part in frozen))
      optimizer = dataclasses.replace(self.optimizer, frozen_parts=parts)
      training = dataclasses.replace(self, optimizer=optimizer)
    init_params = functools.partial(saved_models.init_open_qa_model, model)
    return training.make_program(
      self.objective.build(model), init_params=init_params, batch_size=self.data.batch_size
    )
