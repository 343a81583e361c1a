"""The objectives of each kind of training, with metrics named as they are logged."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from realm_jax.data import batches
from realm_jax.datatypes import Array, Mean
from realm_jax.models.encoder import Encoder
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.models.realm import RealmOutputs, RealmPretrainingModel
from realm_jax.models.token_tagger import TokenTagger
from realm_jax.objectives.contrastive import compared_passages, contrastive
from realm_jax.objectives.marginal_likelihood import Marginalization, masked_lm_over_retrieval
from realm_jax.objectives.open_qa import open_qa
from realm_jax.objectives.token_classification import token_classification
from realm_jax.training.objective import LOSS, Objective


def masked_lm(
  model: RealmPretrainingModel,
  *,
  marginalize: Marginalization,
  compares_batch: bool = False,
  dual_encoder_learns: bool = True,
  reader_learns: bool = True,
) -> Objective:
  """Returns the pre-training objective on `RetrievedBatch`es.

  The backward pass of an encoder that does not learn is not computed.
  """

  def outputs(params, batch, key):
    found = model.apply(
      {"params": params},
      batch,
      dual_encoder_learns=dual_encoder_learns,
      compares_batch=compares_batch,
      **_dropout(key),
    )
    if reader_learns:
      return found
    return found.replace(logits_BxKxMxV=jax.lax.stop_gradient(found.logits_BxKxMxV))

  def score(outputs: RealmOutputs, batch):
    figures = masked_lm_over_retrieval(
      outputs.scores_BxK,
      outputs.logits_BxKxMxV,
      batch,
      marginalize=marginalize,
      unread_B=outputs.unread_B,
    )
    return _grouped(
      figures, "retrieval", loss=("masked_token_accuracy", "span_accuracy", "null_span_accuracy")
    )

  return Objective(outputs, score)


def plain_masked_lm(model: KnowledgeAugmentedEncoder) -> Objective:
  """Returns the objective of masked language modelling on `MaskedQueryConverter`'s features."""

  def outputs(params, batch, key):
    return model.apply(
      {"params": params["knowledge_augmented_encoder"]},
      batches.tokens(batch["query"]),
      batch["mlm_positions"],
      **_dropout(key),
    )

  def score(logits_BxMxV, batch):
    labels_BxM = jnp.where(batch["mlm_weights"] > 0, batch["mlm_targets"] + 1, 0)
    return _grouped(token_classification(logits_BxMxV, labels_BxM), "loss")

  return Objective(outputs, score)


def pairs(model: Encoder, *, score_scale: float = 1.0) -> Objective:
  """Returns the contrastive objective.

  Its batches have `query` `[B, L]`, and `passage` and `passage_segments` `[B, K, P]` or, with one
  passage per query, `[B, P]`. The optional `passage_uid` `[B, K]` and `also_right` `[B, O]` tell
  which passages are not negatives.
  """

  def outputs(params, batch, key):
    ids, segments = batch["passage"], batch["passage_segments"]
    length = ids.shape[-1]
    query_BxE, passage_FxE = model.apply(
      {"params": params["dual_encoder"]},
      batches.tokens(batch["query"]),
      batches.tokens(ids.reshape(-1, length), segments.reshape(-1, length)),
      method="encode_pairs",
      **_dropout(key),
    )
    return query_BxE, passage_FxE.reshape(len(query_BxE), -1, passage_FxE.shape[-1])

  def score(outputs: tuple[Array, Array], batch):
    query_BxE, passage_BxKxE = outputs
    shape = passage_BxKxE.shape[:2]
    compared_BxF = compared_passages(
      (batch["passage"] != 0).any(axis=-1).reshape(shape),
      batch.get("passage_uid", jnp.zeros(shape, jnp.int32)),
      batch.get("also_right", jnp.zeros((shape[0], 0), jnp.int32)),
    )
    return _grouped(contrastive(score_scale * query_BxE, passage_BxKxE, compared_BxF), "loss")

  return Objective(outputs, score, compares_rows=True)


def questions(model: OpenQaModel) -> Objective:
  """Returns the fine-tuning objective on `RetrievedQuestions`."""

  def outputs(params, batch, key):
    found = model.apply({"params": params}, batch, **_dropout(key))
    return found.scores_BxR, found.logits_BxKxTxW

  def score(outputs: tuple[Array, Array], batch):
    figures = open_qa(*outputs, batch)
    return {_QUESTION_FIGURES[name]: mean for name, mean in figures.items()}

  return Objective(outputs, score)


_QUESTION_FIGURES = {
  "loss": LOSS,
  "retrieval_loss": "loss/retrieval",
  "reader_loss": "loss/reader",
  "span_exact_match": "answers/span_exact_match",
  "reader_oracle": "answers/reader_oracle",
  "answer_in_beam": "answers/in_beam",
  "answer_read": "answers/in_passages_read",
  "without_answer": "answers/without",
}


def tags(model: TokenTagger) -> Objective:
  """Returns the objective of a tagger on `TokenLabelsConverter`'s features."""

  def outputs(params, batch, key):
    return model.apply({"params": params}, batches.tokens(batch["tokens"]), **_dropout(key))

  def score(logits_BxLxY, batch):
    return _grouped(token_classification(logits_BxLxY, batch["labels"]), "loss")

  return Objective(outputs, score)


def _dropout(key) -> dict:
  if key is None:
    return {"deterministic": True}
  return {"deterministic": False, "rngs": {"dropout": key}}


def _grouped(figures: Mapping[str, Mean], group: str, *, loss=()) -> dict[str, Mean]:
  """Prefixes metrics by group, as TensorBoard shows them."""
  groups = dict.fromkeys(loss, "loss")
  return {
    LOSS if name == "loss" else f"{groups.get(name, group)}/{name}": mean
    for name, mean in figures.items()
  }
