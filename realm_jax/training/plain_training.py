"""The configuration of trainings that need no retrieval, and their runs."""

import abc
import dataclasses
from collections.abc import Sequence

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import Corpus
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
  def describe(self, corpus: Corpus) -> saved_models.ModelDescription:
    """Returns the description of the model and its training data for checkpoints."""

  @abc.abstractmethod
  def program(self) -> TrainProgram:
    """Returns the train step and the layout of the train state."""

  def open(
    self, workdir: str, examples: Examples, *, corpus: Corpus, warm_starts: Sequence[WarmStart]
  ) -> TrainingRun:
    """Returns the run in a working directory, on examples made from the corpus."""
    description = self.describe(corpus)
    description.check_sizes(corpus.vocabulary)
    run = TrainingRun(
      workdir,
      program=self.program(),
      config=self,
      description=description,
      batch_settings=examples.batch_settings(seed=self.run.seed),
      warm_starts=warm_starts,
      from_corpus=lambda: description.from_corpus(corpus),
    )
    run.keep(corpus.vocabulary)
    return run
