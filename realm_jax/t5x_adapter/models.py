"""The model of pre-training for t5x, its optimizer, and metrics that t5x merges over steps.

A batch is a flat mapping of arrays, with the passages that `trainer.RetrievingTrainer` has found;
see `datatypes.named_arrays` for their names.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import clu.metrics
import flax.core
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen import partitioning as flax_partitioning
from t5x import metrics as t5x_metrics
from t5x import models, optimizers

from realm_jax.answering import mask_decoding
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import open_corpus
from realm_jax.devices.datatypes import Array, RetrievedBatch, batch_of
from realm_jax.models.bert import BertConfig
from realm_jax.models.encoder import EncoderConfig
from realm_jax.objectives.marginal_likelihood import (
  Marginalization,
  MarginalLikelihood,
  marginal_log_likelihood,
)
from realm_jax.objectives.objective import LOSS
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.t5x_adapter import features
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import PARTS, ModelConfig, Pretraining
from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.run.starts import Starts, read

# Our names equal t5x's except this one; t5x's standard rules do not shard axes they do not name.
_T5X_NAMES = {"position": "abspos_buckets"}

_average: Callable[..., clu.metrics.Metric] = clu.metrics.Average


def variables_of(boxed: dict) -> dict[str, dict]:
  """Returns the collections `params` and `params_axes` of boxed parameters."""
  axes = {}
  flat: dict[tuple[str, ...], Any] = flax.traverse_util.flatten_dict(boxed)
  for (*parts, name), box in flat.items():
    names = tuple(_T5X_NAMES.get(axis, axis) for axis in box.names)
    axes[*parts, f"{name}_axes"] = flax_partitioning.AxisMetadata(names=names)
  return {"params": nn.unbox(boxed), "params_axes": flax.traverse_util.unflatten_dict(axes)}


class PretrainingModel(models.BaseModel):
  """REALM's pre-training: masked words given the query and K retrieved passages.

  Args:
    optimizer_def: A t5x optimizer, such as `RealmOptimizer`.
    passages: Directory of the knowledge corpus, which contains the vocabulary.
    dual_encoder: The retrieval model.
    knowledge_augmented_encoder: The model that reads query and passage together.
    retrieval: Number and lengths of the passages read.
    query_length: Wordpieces of a query, as in the task's feature lengths.
    max_masks: Masked wordpieces predicted in a query, as in the task's feature lengths.
    objective: What is minimised.
    start: Checkpoints of realm_jax that a new run takes parameters from, see `realm pretrain`.
    accumulate_steps: Number of parts of a batch, computed one after another.
  """

  FEATURE_CONVERTER_CLS = functools.partial(features.make_converter, features.MaskedQueryFeatures)

  def __init__(
    self,
    optimizer_def,
    *,
    passages: str,
    dual_encoder: EncoderConfig,
    knowledge_augmented_encoder: BertConfig,
    retrieval: RetrievalConfig,
    query_length: int,
    max_masks: int,
    objective: MarginalLikelihood = MarginalLikelihood(),
    start: Starts = (),
    accumulate_steps: int = 1,
  ):
    self.starts = read(start, parts=PARTS)
    self.store = open_corpus(passages, starts=[start.checkpoints for start in self.starts])
    training = Pretraining(
      data=MaskedQueryData(query_length=query_length, max_masks=max_masks),
      model=ModelConfig(
        dual_encoder=dual_encoder, knowledge_augmented_encoder=knowledge_augmented_encoder
      ),
      retrieval=retrieval,
    ).begun(self.starts)
    super().__init__(optimizer_def=optimizer_def)
    self.description = training.describe(self.store)
    self.description.check_sizes(self.store.vocabulary)
    self.retrieval = retrieval
    self.module = training.model.make()
    self.objective = objective.build(self.module).of_lengths(self.store.length_quantiles())
    self.accumulate_steps = accumulate_steps
    self._marginalize: Marginalization = objective.marginalize

  def loss_fn(self, params, batch: features.Features, dropout_rng: jax.Array | None):
    """Returns the loss, a mean over the batch, and metrics; without a key there is no dropout."""
    rows = batch_of(RetrievedBatch, batch)
    if dropout_rng is None:
      metrics = self.objective.metrics(params, rows)
      loss = metrics[LOSS].value
    else:
      loss, metrics = self._loss(params, rows, dropout_rng)
    batch_size = next(iter(batch.values())).shape[0]
    return loss, {
      **{name: _average(total=mean.total, count=mean.count) for name, mean in metrics.items()},
      "timing/steps_per_second": t5x_metrics.StepsPerTime.from_model_output(),
      "timing/seqs_per_second": t5x_metrics.TimeRate.from_model_output(
        numerator=jnp.asarray(batch_size, jnp.float32)  # with padding
      ),
    }

  def _loss(self, params, rows, key):
    """Returns loss and metrics; the gradient is computed with them, in parts."""

    @jax.custom_vjp
    def loss_and_metrics(params, rows, key):
      return forward(params, rows, key)[0]

    def forward(params, rows, key):
      gradients, metrics = self.objective.gradients(params, rows, key, parts=self.accumulate_steps)
      return (metrics[LOSS].value, metrics), gradients

    def backward(gradients, cotangents):
      return jax.tree.map(lambda leaf: cotangents[0] * leaf, gradients), None, None

    loss_and_metrics.defvjp(forward, backward)
    return loss_and_metrics(params, rows, key)

  def get_initial_variables(
    self, rng: jax.Array, input_shapes: Mapping, input_types: Mapping | None = None
  ) -> dict:
    """Returns the parameters and the names of their axes, which do not depend on the input."""
    del input_shapes, input_types
    return variables_of(saved_models.init_pretraining_model(self.module, rng))

  def score_batch(
    self, params, batch: features.Features, return_intermediates: bool = False
  ) -> jax.Array:
    """Returns the log-likelihood of each example `[B]`."""
    if return_intermediates:
      raise ValueError("return_intermediates=True; these models record no intermediate values")
    retrieved = batch_of(RetrievedBatch, batch)
    outputs = self.objective.outputs(params, retrieved, None)
    targets_Bx1xMx1 = retrieved.queries.mlm_targets_BxM[:, None, :, None]
    log_probs_BxKxMxV = jax.nn.log_softmax(outputs.logits_BxKxMxV)
    return marginal_log_likelihood(
      outputs.scores_BxK,
      jnp.take_along_axis(log_probs_BxKxMxV, targets_Bx1xMx1, axis=-1)[..., 0],
      retrieved.queries.mlm_weights_BxM,
      valid_BxK=retrieved.valid_BxK,
      marginalize=self._marginalize,
    )

  def predict_batch_with_aux(
    self, params, batch: features.Features, rng: jax.Array | None = None
  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the most likely words `[B, M]`, their log-likelihood, and p(z|x)."""
    del rng
    retrieved = batch_of(RetrievedBatch, batch)
    outputs = self.objective.outputs(params, retrieved, None)
    found = mask_decoding.read(
      outputs.scores_BxK,
      outputs.logits_BxKxMxV,
      retrieved.queries.mlm_weights_BxM,
      valid_BxK=retrieved.valid_BxK,
    )
    return found.answers_BxCxM[:, 0], {
      "scores": found.log_probs_BxC[:, 0],
      "passage_ids": retrieved.passage_ids_BxK,
      "retrieval_log_probs": found.retrieval_log_probs_BxK,
    }


def step_metrics(metrics: Mapping[str, Array | float]) -> dict[str, clu.metrics.Metric]:
  """Makes the metrics of one step on the host."""
  one = np.float32(1)
  return {name: _average(total=np.float32(value), count=one) for name, value in metrics.items()}


class RealmOptimizer(optimizers.OptaxWrapper):
  """An optimizer with a schedule of its own; the trainer's learning rate is only reported."""

  def __init__(self, config: OptimizerConfig, *, num_steps: int):
    super().__init__(_of_frozen_dicts(make_optimizer(config, num_steps=num_steps)))

  def derive_logical_axes(self, optimizer, param_logical_axes):
    """Returns the optimizer with axis names for arrays; moments have their parameter's names."""
    axes = flax.traverse_util.flatten_dict(flax.core.unfreeze(param_logical_axes))
    state = flax.traverse_util.flatten_dict(optimizer.state_dict()["state"])

    def axes_of(path):
      ends = (path[first:] for first in range(len(path)))
      return next((axes[end] for end in ends if end in axes), None)

    derived = flax.traverse_util.unflatten_dict({path: axes_of(path) for path in state})
    return optimizer.restore_state(
      {"target": flax.core.unfreeze(param_logical_axes), "state": derived}
    )


def _of_frozen_dicts(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
  """Wraps a transformation of plain dictionaries for t5x's frozen ones."""

  def init(params):
    return transformation.init(flax.core.unfreeze(params))

  def update(updates, state, params=None):
    params = None if params is None else flax.core.unfreeze(params)
    found, state = transformation.update(flax.core.unfreeze(updates), state, params)
    return flax.core.freeze(cast(dict, found)), state

  return optax.GradientTransformation(init, update)
