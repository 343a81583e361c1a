"""A batch in parts: the loss, the metrics and the gradients of the batch as a whole."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Mean, RetrievedQuestions
from realm_jax.models import lengths
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.models.open_qa import OpenQaModel, SpanReaderConfig
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.objectives.masked_lm import MaskedLm
from realm_jax.objectives.objective import LOSS, Loss
from realm_jax.objectives.open_qa import OpenQa
from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.run.train_program import TrainProgram
from tests.configurations import tiny_bert

B, K, M, V = 8, 3, 4, 32
BERT = tiny_bert(vocab_size=V, hidden_size=16, mlp_size=24)
READER = dataclasses.replace(BERT, dropout_rate=0.1)
DUAL_ENCODER = DualEncoderConfig(bert=BERT, projection_size=8)
LENGTHS = 2, 2, 3, 3, 4, 4, 6, 7, 7
CLOSE = 1e-5  # sums of a few hundred float32 numbers, added in another order


def pairs(make_retrieved_batch):
  model = DualEncoder(DUAL_ENCODER)
  batch = make_retrieved_batch(0, queries=B, passages=2, masks=M, vocab_size=V)
  batch = {
    "query": batch.queries.query.ids,
    "passage": batch.passage.ids[:, 1],
    "passage_segments": batch.passage.segments[:, 1],
    "passage_uid": np.array([1, 3, 5, 7, 1, 10, 12, 3])[:, np.newaxis],
  }

  def init(key):
    return {"dual_encoder": saved_models.init_dual_encoder(model, key)}

  return Contrastive().build(model).of_params(lambda params: params["dual_encoder"]), init, batch


def masked_lm_and_pairs(make_retrieved_batch):
  """Masked queries, and pairs of half as many rows."""
  model = RealmPretrainingModel(DUAL_ENCODER, READER)
  batch = make_retrieved_batch(0, queries=B, passages=K, masks=M, vocab_size=V)
  batch.queries.mlm_weights_BxM[3] = 0  # rows count for as much as they have masks
  _, _, mined = pairs(make_retrieved_batch)
  batch = dataclasses.replace(batch, pairs={name: rows[:4] for name, rows in mined.items()})
  objective = MarginalLikelihood(marginalize="token") + 0.5 * Contrastive()
  init = functools.partial(saved_models.init_pretraining_model, model)
  return objective.build(model), init, batch


def masked_words(make_retrieved_batch):
  model = KnowledgeAugmentedEncoder(dataclasses.replace(READER, copies=True))
  queries = make_retrieved_batch(0, queries=B, passages=2, masks=M, vocab_size=V).queries
  batch = {
    "query": queries.query.ids,
    "mlm_positions": queries.mlm_positions_BxM % queries.query.mask.sum(axis=1, keepdims=True),
    "mlm_targets": queries.mlm_targets_BxM,
    "mlm_weights": queries.mlm_weights_BxM,
    "source_uid": queries.source_uid_B[:, np.newaxis],
  }

  def init(key):
    inputs = queries.query, queries.mlm_positions_BxM
    return model.init(key, *inputs, deterministic=True)["params"]

  return MaskedLm().build(model), init, batch


def questions(make_retrieved_batch):
  """Questions whose passages are embedded afresh."""
  model = OpenQaModel(DUAL_ENCODER, SpanReaderConfig(bert=READER, max_span_width=3))
  batch = make_retrieved_batch(0, queries=B, passages=K, masks=M, vocab_size=V)
  random = np.random.default_rng(0)
  batch = RetrievedQuestions(
    query=batch.queries.query,
    weights_B=np.ones(B, np.float32),
    question_index_B=np.arange(B, dtype=np.int32),
    passage_ids_BxR=np.abs(batch.passage_ids_BxK),
    embeddings_BxRxE=random.normal(size=(B, K, 8)).astype(np.float32),
    has_answer_BxR=random.random((B, K)) < 0.5,
    joint=batch.joint,
    gold_BxKxTxW=random.random((*batch.joint.shape, 3)) < 0.3,
    passage=batch.passage,
  )
  return OpenQa().build(model), functools.partial(saved_models.init_open_qa_model, model), batch


JOBS = {
  "pairs": pairs,
  "masked lm and pairs": masked_lm_and_pairs,
  "masked words": masked_words,
  "questions": questions,
}


@functools.cache
def random_params(job, make_retrieved_batch):
  """Far apart, so that passages and words differ."""
  shapes = nn.unbox(jax.eval_shape(JOBS[job](make_retrieved_batch)[1], jax.random.key(0)))
  random = np.random.default_rng(0)
  return jax.tree.map(lambda leaf: 0.3 * random.normal(size=leaf.shape).astype("float32"), shapes)


@functools.cache
def gradients_and_metrics(job, make_retrieved_batch, parts, buckets=None):
  objective, _, batch = JOBS[job](make_retrieved_batch)
  with pytest.MonkeyPatch.context() as patch:
    if buckets is not None:
      changed = {"_LONG": 0, "_STEP": 2, "_BUCKETS": buckets, "_SENTENCES": (2, 3)}
      changed["_SHIFTS"] = (0.2,)  # one, for the time that programs take to compile
      for name, value in changed.items():
        patch.setattr(lengths, name, value)
      objective = objective.of_lengths(LENGTHS)
      assert max(num_lengths(objective, batch, parts)) > 1
    gradients = jax.jit(functools.partial(objective.gradients, parts=parts))
    key = jax.random.fold_in(jax.random.key(0), 0)
    sums, metrics = gradients(random_params(job, make_retrieved_batch), batch, key)
  return sums, {name: mean.value for name, mean in metrics.items()}


def num_lengths(objective, batch, parts):
  """Yields the number of lengths in which the sequences of each part are computed."""
  for *_, loss in getattr(objective, "terms", [(objective,)]):
    rows = lengths.balanced(loss.rows(batch), parts=parts)
    for part in range(parts):
      ways = loss.ways(jax.tree.map(lambda leaf, part=part: leaf[part::parts], rows), LENGTHS)
      way = next(way for fits, way in ways if fits)
      yield from (len(value) for name, value in vars(way).items() if "buckets" in name)


@pytest.mark.timeout(600)  # each compiles two steps in all their lengths
@pytest.mark.parametrize(
  ("job", "parts", "buckets"),
  [
    ("masked lm and pairs", 2, 2),
    ("masked words", 1, 3),
    ("questions", 1, 3),
  ],
)
def test_neither_parts_nor_lengths_change_loss_metrics_or_gradients(
  make_retrieved_batch, job, parts, buckets
):
  """With dropout, which depends on the row and neither on its part nor on its padding."""
  whole, metrics = gradients_and_metrics(job, make_retrieved_batch, 1)
  found, found_metrics = gradients_and_metrics(job, make_retrieved_batch, parts, buckets)
  for name, value in metrics.items():
    np.testing.assert_allclose(found_metrics[name], value, rtol=CLOSE, atol=CLOSE, err_msg=name)
  limit = CLOSE * max(np.abs(leaf).max() for leaf in jax.tree.leaves(whole))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=limit), found, whole)


def test_parts_change_no_step_on_a_mesh(make_retrieved_batch):
  objective, init, batch = pairs(make_retrieved_batch)
  program = TrainProgram(
    mesh=partitioning.make_mesh(model=2, devices=jax.devices()[:4]),
    init_params=init,
    objective=objective,
    optimizer=make_optimizer(OptimizerConfig(), num_steps=1),
    seed=0,
    accumulate_steps=2,
    layout="fully_sharded",
  )
  shardings = jax.tree.map(lambda leaf: leaf.sharding, program.abstract_state.params)
  params = jax.device_put(random_params("pairs", make_retrieved_batch), shardings)
  state = program.new_state().replace(params=params)
  _, metrics = program.train_step(state, jax.device_put(batch, program.batch_sharding))
  whole, expected = gradients_and_metrics("pairs", make_retrieved_batch, 1)
  for name, value in {**expected, "gradient_norm": optax.global_norm(whole)}.items():
    np.testing.assert_allclose(metrics[name], value, rtol=CLOSE, atol=CLOSE, err_msg=name)


def equal_rows(make_retrieved_batch, dtype):
  """Two masked queries and two pairs, 256 times each, of a model without dropout."""
  bert = dataclasses.replace(BERT, dtype=dtype, attention_dropout_rate=0.0)
  dual_encoder = dataclasses.replace(DUAL_ENCODER, bert=bert, projection_dropout_rate=0.0)
  model = RealmPretrainingModel(dual_encoder, dataclasses.replace(bert, copies=True))
  batch = make_retrieved_batch(0, queries=2, passages=K, masks=M, vocab_size=V)
  _, _, mined = pairs(make_retrieved_batch)
  batch = dataclasses.replace(batch, pairs={name: rows[:2] for name, rows in mined.items()})
  objective = (MarginalLikelihood() + 0.5 * Contrastive()).build(model)
  init = functools.partial(saved_models.init_pretraining_model, model)
  return objective, init, jax.tree.map(lambda rows: np.concatenate([rows] * 256), batch)


@functools.cache
def exact_gradients(make_retrieved_batch):
  with jax.enable_x64(True):
    objective, init, batch = equal_rows(make_retrieved_batch, "float64")
    shapes, random = nn.unbox(jax.eval_shape(init, jax.random.key(0))), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: 0.3 * random.normal(size=leaf.shape), shapes)
    gradients = jax.jit(functools.partial(objective.gradients, parts=1))
    return params, jax.tree.map(np.asarray, gradients(params, batch, jax.random.key(0))[0])


@pytest.mark.parametrize(
  ("layout", "parts", "num_devices"), [("replicated", 1, 1), ("fully_sharded", 4, 4)]
)
def test_sums_over_tokens_lose_no_more_than_their_terms(
  make_retrieved_batch, layout, parts, num_devices
):
  """Of bfloat16 activations; a sum that is bfloat16 itself stops at 256 equal terms."""
  params, expected = exact_gradients(make_retrieved_batch)
  objective, init, batch = equal_rows(make_retrieved_batch, "bfloat16")
  mesh = partitioning.make_mesh(devices=jax.devices()[:num_devices])
  boxed = jax.eval_shape(init, jax.random.key(0))
  params = jax.tree.map(np.float32, params)
  params = jax.device_put(params, partitioning.tree_shardings(mesh, boxed, layout=layout))
  batch = jax.device_put(batch, partitioning.batch_sharding(mesh))
  gradients = partitioning.on_mesh(mesh, functools.partial(objective.gradients, parts=parts))
  found, _ = jax.jit(gradients)(params, batch, jax.random.key(0))
  for (path, exact), leaf in zip(
    jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True
  ):
    name = jax.tree_util.keystr(path)
    assert leaf.dtype == np.float32, name
    # A dozen roundings in a row; the softmax does not see the biases of keys.
    limit = 12 * 2**-8 * np.linalg.norm(exact) + 1e-4
    assert np.linalg.norm(leaf - exact) < limit, name


def test_a_batch_that_cannot_be_cut_is_refused(make_retrieved_batch):
  objective, init, batch = pairs(make_retrieved_batch)
  params = nn.unbox(jax.eval_shape(init, jax.random.key(0)))
  with pytest.raises(ValueError, match="a batch of 8 cannot be split into 3 equal parts; change"):
    objective.gradients(params, batch, jax.random.key(0), parts=3)


def test_a_batch_in_which_nothing_counts_has_no_gradient():
  objective = Loss(
    lambda params, batch, key: batch @ params, lambda x_B, batch: {LOSS: Mean.of(x_B, 0 * x_B)}
  )
  gradient, metrics = objective.gradients(jnp.ones(3), jnp.ones((4, 3)), jax.random.key(0), parts=2)
  assert float(metrics[LOSS].value) == 0
  np.testing.assert_array_equal(gradient, 0)
