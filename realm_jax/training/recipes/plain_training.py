"""Trainings that need no retrieval, with which REALM begins: on pairs, and on masked words.

Each is a configuration, its model and loss.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import open_corpus
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import Lengths
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import EncoderConfig, example_tokens
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.masked_lm import MaskedLm
from realm_jax.objectives.objective import Objective
from realm_jax.training.recipes.examples import DataConfig, Examples, MaskedQueryData, PairData
from realm_jax.training.run.batch_sources import PlainBatches
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.starts import Start, Starts, configured, read
from realm_jax.training.run.train_program import TrainProgram
from realm_jax.training.run.training_config import TrainingConfig
from realm_jax.training.run.training_run import TrainingRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainTraining(TrainingConfig, abc.ABC):
  """The configuration of a training on examples, except for its directories.

  Attributes:
    data: The examples and how they are batched.
    part: The name of its model among the parts of models.
  """

  data: DataConfig
  part: ClassVar[str]

  @abc.abstractmethod
  def begun(self, starts: Iterable[Start]) -> Self:
    """Returns the same training of a model as its starts have it."""

  @abc.abstractmethod
  def describe(self, store: PassageStore) -> saved_models.ModelDescription:
    """Returns the description of the model and its training data for checkpoints."""

  @abc.abstractmethod
  def make(self) -> tuple[nn.Module, Callable[[jax.Array], dict]]:
    """Returns the model, and what makes its boxed parameters of a key."""

  def program(self, mesh: Mesh | None = None, *, lengths: Lengths = ()) -> TrainProgram:
    """Returns the train step and the layout of its state, on a mesh or on all devices.

    Args:
      lengths: Those of the corpus's passages, without which every sequence has full length.
    """
    model, init = self.make()
    return self.make_program(
      self.objective.build(model).of_params(lambda params: params[self.part]),
      init_params=lambda key: {self.part: init(key)},
      batch_size=self.data.batch_size,
      mesh=mesh,
      lengths=lengths,
    )

  def train(
    self,
    workdir: str,
    *,
    passages: str,
    prepared: str | None = None,
    start: Starts,
  ) -> None:
    """Trains in a working directory, on examples from a corpus or prepared from it."""
    starts = read(start, parts=[self.part])
    training = self.begun(starts)
    store = open_corpus(passages, starts=[start.checkpoints for start in starts])
    source = passages if prepared is None else prepared
    examples = Examples(data=self.data, source=source, vocabulary=store.vocabulary_directory)
    description = training.describe(store)
    description.check_sizes(store.vocabulary)
    run = TrainingRun(
      workdir,
      program=training.program(lengths=store.length_quantiles()),
      config=training,
      description=description,
      batch_settings=examples.batch_settings(seed=self.run.seed),
      starts=starts,
    )
    with run:
      run.keep(store.vocabulary)
      run.train(
        PlainBatches(examples.streams(seed=self.run.seed), put_on_devices=run.put_on_devices)
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastiveTraining(PlainTraining):
  """The configuration of a contrastive training, except for its directories.

  Attributes:
    data: The pairs and how they are batched.
    dual_encoder: The model.
  """

  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-4)
  data: PairData = PairData()
  dual_encoder: EncoderConfig = DualEncoderConfig(bert=BertConfig())
  objective: Objective = Contrastive()
  part = "dual_encoder"

  def begun(self, starts: Iterable[Start]) -> Self:
    return dataclasses.replace(self, **configured(starts, dual_encoder=self.dual_encoder))

  def describe(self, store: PassageStore) -> saved_models.ModelDescription:
    return saved_models.ModelDescription(
      dual_encoder=self.dual_encoder,
      query_length=self.data.query_length,
      passage_length=self.data.passage_length,
      vocabulary_digest=store.metadata.vocabulary_digest,
      corpus_fingerprint=store.fingerprint,
    )

  def abstract_batch(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a batch of pairs that are made while training."""
    data = self.data
    lengths = {"query": data.query_length, "passage": data.passage_length, "passage_uid": 1}
    lengths["passage_segments"] = data.passage_length
    return {
      name: jax.ShapeDtypeStruct((data.batch_size, length), jnp.int32)
      for name, length in lengths.items()
    }

  def make(self) -> tuple[nn.Module, Callable[[jax.Array], dict]]:
    model = self.dual_encoder.make()
    return model, functools.partial(saved_models.init_dual_encoder, model)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLmTraining(PlainTraining):
  """The configuration of masked language modelling, except for its directories.

  Attributes:
    data: The masked texts and how they are batched.
    bert: The model.
  """

  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-4)
  data: MaskedQueryData = MaskedQueryData(
    batch_size=256, query_length=128, max_masks=20, mask="passage_tokens"
  )
  bert: BertConfig = BertConfig()
  objective: Objective = MaskedLm()
  part = "knowledge_augmented_encoder"

  def begun(self, starts: Iterable[Start]) -> Self:
    found = configured(starts, knowledge_augmented_encoder=self.bert)
    return dataclasses.replace(self, bert=found[self.part])

  def describe(self, store: PassageStore) -> saved_models.ModelDescription:
    return saved_models.ModelDescription(
      # Not part of the checkpoint: what a dual encoder that starts from it may look like.
      dual_encoder=DualEncoderConfig(bert=self.bert),
      knowledge_augmented_encoder=self.bert,
      query_length=self.data.query_length,
      max_masks=self.data.max_masks,
      passage_length=self.data.query_length,
      vocabulary_digest=store.metadata.vocabulary_digest,
      corpus_fingerprint=store.fingerprint,
    )

  def make(self) -> tuple[nn.Module, Callable[[jax.Array], dict]]:
    model = KnowledgeAugmentedEncoder(self.bert)

    def init(key: jax.Array) -> dict:
      tokens, positions = example_tokens(1, 8), jnp.zeros((1, 1), jnp.int32)
      return model.init(key, tokens, positions, deterministic=True)["params"]

    return model, init
