"""The configuration of contrastive training, and its model and loss."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import EncoderConfig
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.objective import Objective
from realm_jax.training.examples import PairData
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.plain_training import PlainTraining
from realm_jax.training.train_program import TrainProgram


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

  def program(self, mesh: Mesh | None = None) -> TrainProgram:
    """Returns the train step and the layout of its state, on a mesh or on all devices."""
    model = self.dual_encoder.make()

    def init_params(key: jax.Array) -> dict:
      return {"dual_encoder": saved_models.init_dual_encoder(model, key)}

    objective = self.objective.build(model).of_params(lambda params: params["dual_encoder"])
    return self.make_program(
      objective, init_params=init_params, batch_size=self.data.batch_size, mesh=mesh
    )
