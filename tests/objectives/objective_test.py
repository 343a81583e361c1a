"""A batch in parts: the loss, the metrics and the gradients of the batch as a whole."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
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
from realm_jax.objectives.objective import LOSS, Loss, LossSum
from realm_jax.objectives.open_qa import OpenQa
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
  model = OpenQaModel(DUAL_ENCODER, SpanReaderConfig(bert=BERT, max_span_width=3))
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


def random_params(init):
  """Far apart, so that passages and words differ."""
  shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0)))
  random = np.random.default_rng(0)
  return jax.tree.map(lambda leaf: 0.3 * random.normal(size=leaf.shape).astype("float32"), shapes)


def gradients_and_metrics(objective, init, params, batch, *, parts, mesh=None):
  """Returns gradients and metrics, on a mesh with parameters that no device has whole."""
  gradients = functools.partial(objective.gradients, parts=parts)
  if mesh is not None:
    boxed = jax.eval_shape(init, jax.random.key(0))
    shardings = partitioning.tree_shardings(mesh, boxed, layout="fully_sharded")
    params = jax.device_put(params, shardings)
    batch = jax.device_put(batch, partitioning.batch_sharding(mesh))
    gradients = partitioning.on_mesh(mesh, gradients)
  return jax.jit(gradients)(params, batch, jax.random.fold_in(jax.random.key(0), 0))


def in_buckets(objective, most, *, chosen):
  """Returns the objective computed in buckets; if not chosen among all ways, in them alone.

  What does not fit into buckets has another result. Appends the number of buckets to `most`.
  """
  if isinstance(objective, LossSum):
    terms = objective.terms
    return LossSum(tuple((w, name, in_buckets(of, most, chosen=chosen)) for w, name, of in terms))

  def ways(rows, of_corpus):
    (fits, first), *others = objective.ways(rows, of_corpus)
    most.extend(len(value) for name, value in vars(first).items() if "buckets" in name)
    if not chosen:
      return [(fits, first)]
    ((_, whole),) = others  # would read other words
    whole = whole.replace(query=whole.query.replace(ids=0 * whole.query.ids))
    return [(fits, first), (jnp.array(True), whole)]

  return dataclasses.replace(objective, ways=ways)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
  ("job", "parts", "buckets", "num_devices"),
  [
    ("masked lm and pairs", 2, 2, 4),
    ("masked words", 1, 3, 1),
    pytest.param("questions", 1, 3, 1, marks=pytest.mark.slow),
  ],
)
def test_neither_parts_lengths_nor_devices_change_loss_metrics_or_gradients(
  make_retrieved_batch, monkeypatch, job, parts, buckets, num_devices
):
  """With dropout, which depends on the row and neither on its part nor on its padding."""
  objective, init, batch = JOBS[job](make_retrieved_batch)
  params = random_params(init)
  whole, metrics = gradients_and_metrics(objective, init, params, batch, parts=1)
  changed = {"_LONG": 0, "_STEP": 2, "_BUCKETS": buckets, "_SENTENCES": (2, 3)}
  changed["_SHIFTS"] = (0.2,)  # one, for the time that programs take to compile
  for name, value in changed.items():
    monkeypatch.setattr(lengths, name, value)
  most = []
  objective = in_buckets(objective.of_lengths(LENGTHS), most, chosen=job == "masked words")
  mesh = None
  if num_devices > 1:
    mesh = partitioning.make_mesh(model=2, devices=jax.devices()[:num_devices])
  found, found_metrics = gradients_and_metrics(
    objective, init, params, batch, parts=parts, mesh=mesh
  )
  assert max(most) > 1
  for name, mean in metrics.items():
    value, other = mean.value, found_metrics[name].value
    np.testing.assert_allclose(other, value, rtol=CLOSE, atol=CLOSE, err_msg=name)
  limit = CLOSE * max(np.abs(leaf).max() for leaf in jax.tree.leaves(whole))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=limit), found, whole)


def equal_rows(make_retrieved_batch, dtype):
  """Two masked queries, 512 times each, of a model without dropout."""
  bert = dataclasses.replace(BERT, dtype=dtype, attention_dropout_rate=0.0)
  dual_encoder = dataclasses.replace(DUAL_ENCODER, bert=bert, projection_dropout_rate=0.0)
  model = RealmPretrainingModel(dual_encoder, dataclasses.replace(bert, copies=True))
  batch = make_retrieved_batch(0, queries=2, passages=K, masks=M, vocab_size=V)
  init = functools.partial(saved_models.init_pretraining_model, model)
  batch = jax.tree.map(lambda rows: np.concatenate([rows] * 512), batch)
  return MarginalLikelihood().build(model), init, batch


def test_sums_over_tokens_lose_no_more_than_their_terms(make_retrieved_batch):
  """Of bfloat16 activations; a sum that is bfloat16 itself stops at 256 equal terms."""
  with jax.enable_x64(True):
    objective, init, batch = equal_rows(make_retrieved_batch, "float64")
    params = jax.tree.map(np.float64, random_params(init))
    expected, _ = gradients_and_metrics(objective, init, params, batch, parts=1)
    expected = jax.tree.map(np.asarray, expected)
  objective, init, batch = equal_rows(make_retrieved_batch, "bfloat16")
  mesh = partitioning.make_mesh(devices=jax.devices()[:4])
  params = jax.tree.map(np.float32, params)
  found, _ = gradients_and_metrics(objective, init, params, batch, parts=4, mesh=mesh)
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
