"""Model, loss and batch of a pre-training: what its compiled programs follow from."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from realm_jax import datatypes, partitioning
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.objectives.marginal_likelihood import masked_lm_over_retrieval
from realm_jax.planning import model_costs
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs import objectives
from realm_jax.saved import saved_models
from realm_jax.training.objective import Objective
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.train_program import TrainProgram


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
  """The settings of `realm pretrain` that its programs and checkpoints follow from; see there."""

  dual_encoder: DualEncoderConfig
  knowledge_augmented_encoder: BertConfig
  retrieval: RetrievalConfig
  optimizer: OptimizerConfig
  batch_size: int
  query_length: int
  max_masks: int
  marginalize: Literal["span", "token"]
  seed: int
  accumulate_steps: int
  model_parallel: int
  layout: partitioning.Layout
  checkpoint_every: int
  keep_checkpoints: int

  @property
  def model(self) -> RealmPretrainingModel:
    return RealmPretrainingModel(self.dual_encoder, self.knowledge_augmented_encoder)

  def init_params(self, key: jax.Array) -> dict:
    """Makes the boxed parameters of both encoders."""
    return saved_models.init_pretraining_model(self.model, key)

  @property
  def objective(self) -> Objective:
    """What is minimised."""
    return objectives.masked_lm(self.model, marginalize=self.marginalize)

  def figures(self, params: dict, batch: datatypes.RetrievedBatch) -> dict[str, datatypes.Mean]:
    """Returns the figures of a batch without dropout, not yet named in groups."""
    outputs = self.model.apply({"params": params}, batch, deterministic=True)
    return masked_lm_over_retrieval(
      outputs.scores_BxK, outputs.logits_BxKxMxV, batch, marginalize=self.marginalize
    )

  def program(self, mesh: Mesh) -> TrainProgram:
    """Returns the train step and the layout of its state on a mesh."""
    return TrainProgram(
      mesh=mesh,
      init_params=self.init_params,
      objective=self.objective,
      optimizer=self.optimizer,
      seed=self.seed,
      accumulate_steps=self.accumulate_steps,
      layout=self.layout,
    )

  def with_layout(self, layout: partitioning.Layout) -> "Pretraining":
    """Returns the same training with its state laid out in another way."""
    return dataclasses.replace(self, layout=layout)

  def on_accelerators(self) -> "Pretraining":
    """Returns the same training with the dtype that "auto" stands for there."""

    def resolved(config: BertConfig) -> BertConfig:
      return dataclasses.replace(config, dtype="bfloat16") if config.dtype == "auto" else config

    dual_encoder = dataclasses.replace(self.dual_encoder, bert=resolved(self.dual_encoder.bert))
    return dataclasses.replace(
      self,
      dual_encoder=dual_encoder,
      knowledge_augmented_encoder=resolved(self.knowledge_augmented_encoder),
    )

  def abstract_batch(self) -> datatypes.RetrievedBatch:
    """Returns the shapes of a batch."""
    retrieval = self.retrieval
    B, K, M = self.batch_size, retrieval.num_passages, self.max_masks
    return datatypes.RetrievedBatch(
      queries=datatypes.MaskedQueries(
        query=abstract_tokens(B, self.query_length),
        mlm_positions_BxM=jax.ShapeDtypeStruct((B, M), jnp.int32),
        mlm_targets_BxM=jax.ShapeDtypeStruct((B, M), jnp.int32),
        mlm_weights_BxM=jax.ShapeDtypeStruct((B, M), jnp.float32),
        source_uid_B=jax.ShapeDtypeStruct((B,), jnp.int32),
      ),
      passage=abstract_tokens(B, K, retrieval.passage_length),
      joint=abstract_tokens(B, K, retrieval.joint_length),
      valid_BxK=jax.ShapeDtypeStruct((B, K), jnp.bool_),
      passage_ids_BxK=jax.ShapeDtypeStruct((B, K), jnp.int32),
      stale_scores_BxK=jax.ShapeDtypeStruct((B, K), jnp.float32),
    )

  def passes(self, *, num_devices: int) -> list[model_costs.Pass]:
    """Returns what one device reads in a step: queries, passages, both together."""
    queries = self.batch_size / num_devices
    sequences = queries * self.retrieval.num_passages
    tower = self.dual_encoder.bert
    return [
      encoder_pass(tower, sequences=queries, length=self.query_length),
      encoder_pass(tower, sequences=sequences, length=self.retrieval.passage_length),
      encoder_pass(
        self.knowledge_augmented_encoder,
        sequences=sequences,
        length=self.retrieval.joint_length,
        words=self.max_masks,
      ),
    ]


def encoder_pass(
  bert: BertConfig, *, sequences: float, length: int, words: int = 0
) -> model_costs.Pass:
  """Returns the reading of sequences, for `words` predicted words each or one vector."""
  return model_costs.Pass(
    encoder=model_costs.Encoder(
      layers=bert.num_layers,
      width=bert.hidden_size,
      heads=bert.num_heads,
      mlp=bert.mlp_size,
      vocab=bert.vocab_size,
      bytes_per_activation=2 if bert.compute_dtype == "bfloat16" else 4,
      remat=bert.remat,
    ),
    sequences=sequences,
    length=length,
    positions=max(words, 1),
    words=words,
  )


def abstract_tokens(*shape: int) -> datatypes.Tokens:
  """Returns the shapes of `Tokens`."""
  return datatypes.Tokens(
    ids=jax.ShapeDtypeStruct(shape, jnp.int32),
    mask=jax.ShapeDtypeStruct(shape, jnp.bool_),
    segments=jax.ShapeDtypeStruct(shape, jnp.int32),
  )
