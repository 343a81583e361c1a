"""The configuration of masked language modelling without retrieval, and its model and loss."""

import dataclasses

import jax
import jax.numpy as jnp

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import example_tokens
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.objectives.masked_lm import MaskedLm
from realm_jax.objectives.objective import Objective
from realm_jax.training.examples import MaskedQueryData
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.plain_training import PlainTraining
from realm_jax.training.train_program import TrainProgram


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

  def program(self) -> TrainProgram:
    model = KnowledgeAugmentedEncoder(self.bert)

    def init_params(key: jax.Array) -> dict:
      tokens, positions = example_tokens(1, 8), jnp.zeros((1, 1), jnp.int32)
      params = model.init(key, tokens, positions, deterministic=True)["params"]
      return {"knowledge_augmented_encoder": params}

    objective = self.objective.build(model).of_params(
      lambda params: params["knowledge_augmented_encoder"]
    )
    return self.make_program(objective, init_params=init_params, batch_size=self.data.batch_size)
