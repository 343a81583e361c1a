"""The configuration of trainings that need no retrieval, and their runs."""

import abc
import dataclasses
from collections.abc import Sequence

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.training.examples import DataConfig, Examples
from realm_jax.training.train_program import TrainProgram
from realm_jax.training.training_config import TrainingConfig
from realm_jax.training.training_run import TrainingRun, WarmStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainTraining(TrainingConfig, abc.ABC):
  """The configuration of a training on examples, except for its directories.

  Attributes:
    data: The examples and how they are batched.
  """

  data: DataConfig

  @abc.abstractmethod
  def describe(self, store: PassageStore) -> saved_models.ModelDescription:
    """Returns the description of the model and its training data for checkpoints."""

  @abc.abstractmethod
  def program(self) -> TrainProgram:
    """Returns the train step and the layout of the train state."""

  def open(
    self, workdir: str, examples: Examples, *, store: PassageStore, warm_starts: Sequence[WarmStart]
  ) -> TrainingRun:
    """Returns the run in a working directory, on examples made from the corpus."""
    description = self.describe(store)
    description.check_sizes(store.vocabulary)
    run = TrainingRun(
      workdir,
      program=self.program(),
      config=self,
      description=description,
      batch_settings=examples.batch_settings(seed=self.run.seed),
      warm_starts=warm_starts,
      from_corpus=lambda: description.from_corpus(store),
    )
    run.keep(store.vocabulary)
    return run
