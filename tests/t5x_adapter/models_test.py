"""The models under t5x have our objectives' losses, t5x's axes, and metrics that add up."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

pytest.importorskip("t5x", reason="needs the extra t5x; see docs/t5x.md")

import flax.core
from jax.sharding import PartitionSpec
from t5x import partitioning as t5x_partitioning
from t5x import train_state

from realm_jax.checkpoints import saved_models
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import RetrievedBatch, batch_of, named_arrays
from realm_jax.objectives.marginal_likelihood import masked_lm_over_retrieval
from realm_jax.t5x_adapter.models import PretrainingModel, RealmOptimizer
from realm_jax.t5x_adapter.trainer import RetrievingTrainer
from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer

FROZEN = ("dual_encoder/tower/bert",)


@pytest.fixture(scope="module")
def make_model(world, model_settings, optimizer_settings):
  def make(optimizer=optimizer_settings, **keywords):
    return PretrainingModel(
      RealmOptimizer(optimizer, num_steps=10),
      passages=str(world / "passages"),
      **model_settings,
      **keywords,
    )

  return make


@pytest.fixture(scope="module")
def batch(make_retrieved_batch):
  drawn = make_retrieved_batch(0, queries=8, passages=3, masks=3, vocab_size=1024)
  drawn.queries.mlm_weights_BxM[2] = 0
  return named_arrays(drawn)


@pytest.fixture(scope="module")
def params(make_model):
  # Far apart, so that passages and words differ.
  variables = make_model().get_initial_variables(jax.random.key(0), {})
  return jax.tree.map(lambda leaf: 10 * leaf, variables["params"])


def test_the_loss_is_our_objectives(make_model, params, batch):
  model = make_model()
  loss, metrics = jax.jit(model.eval_fn)(params, batch)
  drawn = batch_of(RetrievedBatch, batch)
  outputs = model.module.apply({"params": params}, drawn, deterministic=True)
  figures = masked_lm_over_retrieval(
    outputs.scores_BxK, outputs.logits_BxKxMxV, drawn, marginalize="span"
  )
  np.testing.assert_allclose(loss, figures["loss"].value, rtol=1e-6)
  named = {name.split("/")[1].replace("total", "loss"): metric for name, metric in metrics.items()}
  for name, mean in figures.items():
    np.testing.assert_allclose(named[name].compute(), mean.value, rtol=1e-5, atol=1e-6)
  assert float(named["loss"].count) == 7


def test_scores_and_predictions(make_model, params, batch):
  model = make_model()
  loss, metrics = jax.jit(model.eval_fn)(params, batch)
  scores = np.asarray(jax.jit(model.score_batch)(params, batch))
  assert scores[2] == 0
  np.testing.assert_allclose(-scores.sum() / 7, loss, rtol=1e-5)
  words_BxM, aux = jax.jit(model.predict_batch_with_aux)(params, batch)
  weights = batch["queries.mlm_weights_BxM"] > 0
  answered = {**batch, "queries.mlm_targets_BxM": np.asarray(words_BxM)}
  best = np.asarray(jax.jit(model.score_batch)(params, answered))
  np.testing.assert_allclose(
    np.asarray(aux["scores"])[weights.any(1)], best[weights.any(1)], rtol=1e-4
  )
  assert (best >= scores - 1e-5).all() and (best > scores + 0.1).any()
  with pytest.raises(ValueError, match="record no intermediate values"):
    model.score_batch(params, batch, return_intermediates=True)


def test_a_batch_in_parts_has_the_gradients_of_the_whole(make_model, params, batch):
  """As t5x computes them, from the loss."""

  def gradients(accumulate_steps):
    model = make_model(accumulate_steps=accumulate_steps)
    loss = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))
    (value, metrics), gradients = loss(params, batch, jax.random.PRNGKey(0))
    return value, metrics["loss/total"].compute(), gradients

  whole = gradients(1)
  limit = 1e-5 * max(np.abs(leaf).max() for leaf in jax.tree.leaves(whole))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=limit), gradients(2), whole)


def test_axes_of_parameters_and_moments_suit_the_standard_rules(make_model):
  config = OptimizerConfig(frozen_parts=FROZEN)
  model = make_model(config)
  variables = model.get_initial_variables(jax.random.key(0), {})
  state = train_state.FlaxOptimTrainState.create(model.optimizer_def, flax.core.freeze(variables))
  partitioner = t5x_partitioning.PjitPartitioner(
    model_parallel_submesh=(1, 2, 1, 1),
    logical_axis_rules=t5x_partitioning.standard_logical_axis_rules(),
  )
  assert dict(partitioner.mesh.shape) == {"data": 4, "model": 2}
  axes = partitioner.get_mesh_axes(state).state_dict()
  found = flat(axes["target"])
  boxed = saved_models.init_pretraining_model(model.module, jax.random.key(0))
  ours = partitioning.tree_shardings(partitioner.mesh, boxed)
  assert found == {name: sharding.spec for name, sharding in flat(ours).items()}
  assert found["dual_encoder/tower/bert/word_embedding/embedding"] == PartitionSpec("model", None)
  moments = {
    name.partition("/mu/")[2]: spec
    for name, spec in flat(axes["state"]["param_states"]).items()
    if "/mu/" in name
  }
  assert moments == {n: s for n, s in found.items() if not n.startswith(FROZEN[0])}


def test_the_optimizer_is_ours(make_model, params):
  config = OptimizerConfig(learning_rate=0.1, warmup_steps=0, frozen_parts=FROZEN)
  ours = make_optimizer(config, num_steps=10)
  gradients = jax.tree.map(jnp.sign, params)
  expected, moments = params, ours.init(params)
  state = RealmOptimizer(config, num_steps=10).create(flax.core.freeze(params))
  for _ in range(2):
    updates, moments = ours.update(gradients, moments, expected)
    expected = optax.apply_updates(expected, updates)
    state = state.apply_gradient(flax.core.freeze(gradients), learning_rate=5.0)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
    flax.core.unfreeze(state.target),
    expected,
  )
  restored = state.restore_state(state.state_dict())
  assert jax.tree.structure(restored.state) == jax.tree.structure(state.state)


def flat(tree):
  return {
    "/".join(str(key.key) for key in path): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(
      flax.core.unfreeze(tree), is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
    )
  }


def test_microbatches_of_t5x_are_refused(make_model):
  with pytest.raises(ValueError, match="num_microbatches=2 would change the loss"):
    RetrievingTrainer(
      make_model(), index="unused", num_microbatches=2, summary_dir=None, publish_every=1
    )
