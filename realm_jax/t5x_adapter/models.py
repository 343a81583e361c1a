"""Models for t5x: our modules and objectives as `t5x.models.BaseModel`s.

A batch is a flat mapping of arrays; see `features.features_of` for their names. The two models with
retrieval take batches with passages that `trainer.RetrievingTrainer` has found.
"""

import abc
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from t5x import models

from realm_jax.data.feature_converters import OpenQuestionConverter, PairConverter
from realm_jax.devices.datatypes import RetrievedBatch, RetrievedQuestions
from realm_jax.inference import reading
from realm_jax.models.bert import BertConfig
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.open_qa import OpenQaModel as OpenQaModule
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import (
  Marginalization,
  MarginalLikelihood,
  marginal_log_likelihood,
)
from realm_jax.objectives.open_qa import OpenQa, joint_logits
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs import starting_points
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.example_sources import MaskedQueryData, PairData, QuestionData
from realm_jax.runs.finetuning import Finetuning
from realm_jax.runs.pretraining import ModelConfig, Pretraining
from realm_jax.runs.training_run import WarmStart
from realm_jax.saved import saved_models
from realm_jax.saved.opening import Corpus, open_corpus
from realm_jax.t5x_adapter import features, metrics, parameters
from realm_jax.training import dropout_keys
from realm_jax.training.objective import LOSS, Loss

_LOWEST = jnp.finfo(jnp.float32).min


class RealmModel(models.BaseModel):
  """The common base of the three models.

  Args:
    optimizer_def: A t5x optimizer, such as `optimizer.RealmOptimizer`.
    description: Description of the model for published checkpoints.
    warm_starts: Checkpoints of realm_jax from which a new run takes parts of its parameters.
    accumulate_steps: Number of parts of a batch, computed one after another.

  Raises:
    ValueError: If vocabulary, model and lengths do not fit each other.
  """

  def __init__(
    self,
    optimizer_def,
    *,
    corpus: Corpus,
    description: saved_models.ModelDescription,
    warm_starts: Sequence[WarmStart],
    objective: Loss,
    accumulate_steps: int,
  ):
    description.check_sizes(corpus.vocabulary)
    super().__init__(optimizer_def=optimizer_def)
    self.description = description
    self.warm_starts = warm_starts
    self.objective = objective
    self.accumulate_steps = accumulate_steps

  @abc.abstractmethod
  def init_params(self, key: jax.Array) -> dict:
    """Makes the boxed parameters."""

  @abc.abstractmethod
  def rows(self, batch: features.Features):
    """Returns a batch in the form that the objective takes."""

  def loss_fn(self, params, batch: features.Features, dropout_rng: jax.Array | None):
    """Returns the loss, a mean over the batch, and metrics; without a key there is no dropout."""
    rows = self.rows(batch)
    if dropout_rng is None:
      figures = self.objective.figures(params, rows)
      loss = figures[LOSS].value
    else:
      loss, figures = self._loss(params, rows, dropout_keys.of_any(dropout_rng))
    batch_size = next(iter(batch.values())).shape[0]
    return loss, metrics.of_batch(figures, batch_size=batch_size)

  def _loss(self, params, rows, key):
    """Returns loss and figures; the gradient is computed with them, in parts."""

    @jax.custom_vjp
    def loss_and_figures(params, rows, key):
      return forward(params, rows, key)[0]

    def forward(params, rows, key):
      gradients, figures = self.objective.gradients(params, rows, key, parts=self.accumulate_steps)
      return (figures[LOSS].value, figures), gradients

    def backward(gradients, cotangents):
      return jax.tree.map(lambda leaf: cotangents[0] * leaf, gradients), None, None

    loss_and_figures.defvjp(forward, backward)
    return loss_and_figures(params, rows, key)

  def get_initial_variables(
    self, rng: jax.Array, input_shapes: Mapping, input_types: Mapping | None = None
  ) -> dict:
    """Returns the parameters and the names of their axes, which do not depend on the input."""
    del input_shapes, input_types
    return parameters.variables_of(self.init_params(rng))

  def score_batch(
    self, params, batch: features.Features, return_intermediates: bool = False
  ) -> jax.Array:
    """Returns the log-likelihood of each example `[B]`.

    Raises:
      ValueError: If intermediate values are requested.
    """
    if return_intermediates:
      raise ValueError("return_intermediates=True; these models record no intermediate values")
    return self.log_likelihood(params, batch)

  @abc.abstractmethod
  def log_likelihood(self, params, batch: features.Features) -> jax.Array:
    """Returns the log-likelihood of each example `[B]`; -inf where nothing read is an answer."""


class PretrainingModel(RealmModel):
  """REALM's pre-training: masked words given the query and K retrieved passages.

  Further arguments and errors are those of `RealmModel`.

  Args:
    passages: Directory of the knowledge corpus, which contains the vocabulary.
    dual_encoder: The retrieval model.
    knowledge_augmented_encoder: The model that reads query and passage together.
    retrieval: Number and lengths of the passages read.
    query_length: Wordpieces of a query, as in the task's feature lengths.
    max_masks: Masked wordpieces predicted in a query, as in the task's feature lengths.
    objective: What is minimised.
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
    warm_starts: Sequence[WarmStart] = (),
    accumulate_steps: int = 1,
  ):
    corpus = open_corpus(passages, warm_starts=[start.checkpoints for start in warm_starts])
    training = Pretraining(
      data=MaskedQueryData(query_length=query_length, max_masks=max_masks),
      model=ModelConfig(
        dual_encoder=dual_encoder, knowledge_augmented_encoder=knowledge_augmented_encoder
      ),
      retrieval=retrieval,
    )
    super().__init__(
      optimizer_def,
      corpus=corpus,
      description=training.describe(corpus),
      warm_starts=warm_starts,
      objective=objective.build(training.module),
      accumulate_steps=accumulate_steps,
    )
    self.module = training.module
    self._marginalize: Marginalization = objective.marginalize

  def init_params(self, key: jax.Array) -> dict:
    return saved_models.init_pretraining_model(self.module, key)

  def rows(self, batch: features.Features) -> RetrievedBatch:
    return features.batch_of(RetrievedBatch, batch)

  def log_likelihood(self, params, batch: features.Features) -> jax.Array:
    retrieved = self.rows(batch)
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
    retrieved = self.rows(batch)
    outputs = self.objective.outputs(params, retrieved, None)
    found = reading.read(
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


class InverseClozeModel(RealmModel):
  """The warm start of the dual encoder: finds the passage that a sentence was cut from.

  Further arguments and errors are those of `RealmModel`.

  Args:
    passages: Directory of the corpus, which contains the vocabulary.
    query_length: Wordpieces of a pseudo-query, as in the task's feature lengths.
    passage_length: Wordpieces of a passage, as in the feature lengths of `title` and `body`.
  """

  def __init__(
    self,
    optimizer_def,
    *,
    passages: str,
    dual_encoder: EncoderConfig,
    query_length: int,
    passage_length: int,
    warm_starts: Sequence[WarmStart] = (),
    accumulate_steps: int = 1,
  ):
    corpus = open_corpus(passages, warm_starts=[start.checkpoints for start in warm_starts])
    module = dual_encoder.make()
    data = PairData(query_length=query_length, passage_length=passage_length)
    training = ContrastiveTraining(data=data, dual_encoder=dual_encoder)
    super().__init__(
      optimizer_def,
      corpus=corpus,
      description=training.describe(corpus),
      warm_starts=warm_starts,
      objective=Contrastive().build(module).of_params(lambda params: params["dual_encoder"]),
      accumulate_steps=accumulate_steps,
    )
    self.module = module
    converter = functools.partial(
      PairConverter, cls_id=corpus.vocabulary.cls_id, sep_id=corpus.vocabulary.sep_id
    )
    self.FEATURE_CONVERTER_CLS = functools.partial(features.make_converter, converter)

  def init_params(self, key: jax.Array) -> dict:
    return {"dual_encoder": saved_models.init_dual_encoder(self.module, key)}

  def rows(self, batch: features.Features) -> features.Features:
    return batch

  def log_likelihood(self, params, batch: features.Features) -> jax.Array:
    return jnp.diagonal(self._log_probs(params, batch))

  def predict_batch_with_aux(
    self, params, batch: features.Features, rng: jax.Array | None = None
  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the passage of the batch `[B]` that each query finds, and its log-probability."""
    del rng
    log_probs_BxB = self._log_probs(params, batch)
    return jnp.argmax(log_probs_BxB, axis=1), {"scores": jnp.max(log_probs_BxB, axis=1)}

  def _log_probs(self, params, batch):
    query_BxE, passage_BxKxE = self.objective.outputs(params, batch, None)
    return jax.nn.log_softmax(query_BxE @ passage_BxKxE[:, 0].T)


class OpenQaModel(RealmModel):
  """Answers questions with spans of retrieved passages; see `realm finetune`.

  Args:
    optimizer_def: See `RealmModel`; if the passage encoder is frozen, it must not update
      `dual_encoder/passage_tower`.
    passages: Directory of the knowledge corpus, which contains the vocabulary.
    retriever: Checkpoints of realm_jax that the dual encoder starts from.
    reader: Checkpoints of realm_jax that the span reader starts from.
    query_length: Wordpieces of a question, as in the task's feature lengths.
    start: How the model starts from the two checkpoints.

  Raises:
    FileNotFoundError: If a corpus or a checkpoint is missing.
    ValueError: If vocabulary, models and lengths do not fit each other.
  """

  FEATURE_CONVERTER_CLS = functools.partial(features.make_converter, OpenQuestionConverter)

  def __init__(
    self,
    optimizer_def,
    *,
    passages: str,
    retriever: str,
    reader: str,
    query_length: int,
    beam: BeamConfig = BeamConfig(),
    start: starting_points.StartConfig = starting_points.StartConfig(),
    accumulate_steps: int = 1,
  ):
    corpus = open_corpus(passages, warm_starts=[retriever, reader])
    begun = starting_points.find(retriever=retriever, reader=reader, config=start)
    module = OpenQaModule(begun.dual_encoder, begun.span_reader)
    training = Finetuning(data=QuestionData(query_length=query_length), beam=beam, start=start)
    super().__init__(
      optimizer_def,
      corpus=corpus,
      description=training.describe(corpus, begun),
      warm_starts=begun.warm_starts,
      objective=OpenQa().build(module),
      accumulate_steps=accumulate_steps,
    )
    self.module = module
    self.passage_encoder = start.passage_encoder

  def init_params(self, key: jax.Array) -> dict:
    return saved_models.init_open_qa_model(self.module, key)

  def rows(self, batch: features.Features) -> RetrievedQuestions:
    return features.batch_of(RetrievedQuestions, batch)

  def log_likelihood(self, params, batch: features.Features) -> jax.Array:
    retrieved = self.rows(batch)
    scores_BxK, logits_BxKxTxW = self._read(params, retrieved)
    joint_BxS = joint_logits(scores_BxK, logits_BxKxTxW)
    gold_BxS = retrieved.gold_BxKxTxW.reshape(joint_BxS.shape) & (joint_BxS > _LOWEST)
    right_B = jax.nn.logsumexp(joint_BxS, axis=1, where=gold_BxS)
    return right_B - jax.nn.logsumexp(joint_BxS, axis=1)

  def predict_batch_with_aux(
    self, params, batch: features.Features, rng: jax.Array | None = None
  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the best span `[B, 3]`: passage row, first and last wordpiece of the joint input."""
    del rng
    retrieved = self.rows(batch)
    scores_BxK, logits_BxKxTxW = self._read(params, retrieved)
    joint_BxS = joint_logits(scores_BxK, logits_BxKxTxW)
    _, num_read, _, num_widths = logits_BxKxTxW.shape
    best_Bx1 = jnp.argmax(joint_BxS, axis=1, keepdims=True)
    slot_Bx1, span_Bx1 = jnp.divmod(best_Bx1, joint_BxS.shape[1] // num_read)
    first_Bx1, width_Bx1 = jnp.divmod(span_Bx1, num_widths)
    row_Bx1 = jnp.take_along_axis(retrieved.passage_ids_BxR, slot_Bx1, axis=1)
    span_Bx3 = jnp.concatenate([row_Bx1, first_Bx1, first_Bx1 + width_Bx1], axis=1)
    return span_Bx3, {"scores": jnp.max(jax.nn.log_softmax(joint_BxS), axis=1)}

  def _read(self, params, retrieved):
    """Returns the scores (the lowest float32 in empty slots) and span scores of passages read."""
    scores_BxR, logits_BxKxTxW = self.objective.outputs(params, retrieved, None)
    scores_BxR = jnp.where(retrieved.valid_BxR, scores_BxR, _LOWEST)
    return scores_BxR[:, : retrieved.joint.shape[1]], logits_BxKxTxW
