"""Training is the same in every layout of its state, and across a change of layout."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files
from realm_jax.devices import partitioning
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.retrieval.posterior import Bm25Posterior
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.starts import Start
from realm_jax.training.run.training_config import MeshConfig, RunConfig
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=32, hidden_size=16, num_heads=4, mlp_size=24, max_length=10)
READER = dataclasses.replace(BERT, dropout_rate=0.1)
STEPS = 4
# Size of the mesh's axis `model`, layout, devices: the plainest, and the one that moves the most.
WAYS = [(1, "replicated", 1), (2, "fully_sharded", 8)]


def make_pretraining(layout="replicated"):
  return Pretraining(
    run=RunConfig(num_steps=100),
    mesh=MeshConfig(layout=layout),
    optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0),
    data=MaskedQueryData(batch_size=8, query_length=6, max_masks=2),
    model=ModelConfig(
      dual_encoder=DualEncoderConfig(bert=BERT, projection_size=8),
      knowledge_augmented_encoder=READER,
    ),
    retrieval=RetrievalConfig(num_passages=2, passage_length=7, joint_length=9),
  )


@functools.cache
def program_and_state(model, layout, num_devices):
  """Returns the compiled program of a layout, and its initial state on the host."""
  mesh = partitioning.make_mesh(model=model, devices=jax.devices()[:num_devices])
  program = make_pretraining(layout).program(mesh)
  return program, jax.tree.map(np.asarray, program.new_state())


class Training:
  """A training of a few steps."""

  def __init__(self, model, layout, num_devices, make_retrieved_batch):
    self.program, state = program_and_state(model, layout, num_devices)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, self.program.abstract_state)
    self.state = jax.device_put(state, shardings)
    self._make_batch = make_retrieved_batch

  def losses(self, steps):
    found = []
    for step in steps:
      batch = self._make_batch(step, queries=8, passages=2, masks=2, vocab_size=32)
      batch = jax.device_put(batch, self.program.batch_sharding)
      self.state, metrics = self.program.train_step(self.state, batch)
      found.append(float(metrics["loss/total"]))
    return found


@pytest.fixture(scope="module")
def expected(make_retrieved_batch):
  return Training(*WAYS[0], make_retrieved_batch).losses(range(STEPS))


@pytest.fixture
def rtol(float_tolerance, encoder_depth):
  """For losses after the forward pass, backward pass and update of each step."""
  return float_tolerance(depth=3 * STEPS * encoder_depth(BERT))


@pytest.mark.slow
def test_losses_are_the_same_in_every_layout(expected, make_retrieved_batch, rtol):
  """With dropout, whose masks follow the examples and not the devices."""
  losses = Training(*WAYS[1], make_retrieved_batch).losses(range(STEPS))
  np.testing.assert_allclose(losses, expected, rtol=rtol)
  assert len({round(loss, 3) for loss in losses}) == STEPS


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_goes_on_in_another_layout(
  tmp_path, expected, make_retrieved_batch, rtol, way
):
  begun = Training(*WAYS[1], make_retrieved_batch)
  begun.losses(range(2))
  with orbax_files.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(2, begun.state, input={}, metadata={})
    checkpointer.wait()
    resumed = Training(*way, make_retrieved_batch)
    abstract = resumed.program.abstract_state
    resumed.state = checkpointer.restore(abstract).state
  wanted = jax.tree.map(lambda leaf: leaf.sharding, abstract)
  assert jax.tree.map(lambda leaf: leaf.sharding, resumed.state) == wanted
  losses = resumed.losses(range(2, STEPS))
  np.testing.assert_allclose(losses, expected[2:], rtol=rtol)
  if way == WAYS[1]:
    assert losses == begun.losses(range(2, STEPS))


@pytest.fixture(scope="module")
def batch(make_retrieved_batch):
  return make_retrieved_batch(0, queries=8, passages=2, masks=2, vocab_size=32)


@pytest.fixture(scope="module")
def params():
  return nn.unbox(jax.jit(make_pretraining().init_params)(jax.random.key(0)))


def gradients(objective, params, batch):
  """Returns gradients and metrics without dropout."""
  return jax.jit(functools.partial(objective.gradients, parts=1))(params, batch, None)


@pytest.fixture(scope="module")
def of_masked(params, batch):
  return gradients(make_pretraining().minimised, params, batch)


def test_a_batch_is_described_as_it_is(batch):
  described = make_pretraining().abstract_batch()
  assert jax.tree.map(lambda leaf: leaf.shape, batch) == jax.tree.map(
    lambda leaf: leaf.shape, described
  )
  placed = jax.tree.map(lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype), batch)
  assert placed == jax.tree.map(lambda leaf: leaf.dtype, described)


def test_a_reader_that_does_not_learn_changes_nothing_for_the_retriever(
  params, batch, of_masked, rtol
):
  frozen = dataclasses.replace(
    make_pretraining(), optimizer=OptimizerConfig(frozen_parts=("knowledge_augmented_encoder",))
  )
  (expected, _), (found, _) = of_masked, gradients(frozen.minimised, params, batch)
  for one, other in zip(
    *(jax.tree.leaves(tree["dual_encoder"]) for tree in (found, expected)), strict=True
  ):
    np.testing.assert_allclose(one, other, atol=rtol * np.abs(other).max())
  reader = [tree["knowledge_augmented_encoder"] for tree in (found, expected)]
  still, moved = ([np.any(leaf) for leaf in jax.tree.leaves(tree)] for tree in reader)
  assert not any(still)
  assert any(moved)


def _pairs(*, queries, vocab_size=32):
  """Returns pairs as the inverse cloze task yields them."""
  random = np.random.default_rng(5)
  return {
    "query": random.integers(1, vocab_size, (queries, 6)).astype(np.int32),
    "passage": random.integers(1, vocab_size, (queries, 7)).astype(np.int32),
    "passage_segments": np.zeros((queries, 7), np.int32),
    "passage_uid": random.permutation(queries)[:, None].astype(np.int32) + 1,
  }


def test_the_mean_losses_of_a_sum_add_up_with_their_weights(params, batch, of_masked, rtol):
  pairs, module = Contrastive(), make_pretraining().model.make()
  batch = dataclasses.replace(batch, pairs=_pairs(queries=4))
  (both, metrics), (added, of_pairs) = (
    gradients(objective.build(module), params, batch)
    for objective in (MarginalLikelihood() + 2 * (0.25 * pairs), pairs)
  )
  alone, masked = of_masked
  loss = masked["loss/total"].value + 0.5 * of_pairs["loss/total"].value
  np.testing.assert_allclose(metrics["loss/total"].value, loss, rtol=rtol)
  assert metrics["contrastive/total"].value == of_pairs["loss/total"].value > 0.5
  expected = jax.tree.map(lambda one, other: one + 0.5 * other, alone, added)
  for found, wanted in zip(jax.tree.leaves(both), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(found, wanted, atol=rtol * (1 + np.abs(wanted).max()))
  assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(added["dual_encoder"])) > 1e-3


def test_pairs_for_a_dual_encoder_that_never_learns_are_refused():
  frozen = OptimizerConfig(frozen_parts=("dual_encoder",))
  pretraining = dataclasses.replace(make_pretraining(), optimizer=frozen)
  pretraining.program()
  with pytest.raises(ValueError, match="a dual encoder that never learns"):
    dataclasses.replace(pretraining, objective=MarginalLikelihood() + Contrastive()).program()


@pytest.mark.parametrize(
  ("towers", "frozen", "learns"),
  [
    ("shared", ["dual_encoder"], False),
    ("shared", ["dual_encoder/tower"], False),
    ("shared", ["dual_encoder/tower/bert"], True),
    ("separate", ["dual_encoder/query_tower", "dual_encoder/passage_tower"], False),
    ("separate", ["dual_encoder/passage_tower"], True),
    ("shared", [], True),
  ],
)
def test_a_dual_encoder_all_of_whose_towers_are_frozen_never_learns(towers, frozen, learns):
  given = make_pretraining()
  dual_encoder = dataclasses.replace(given.model.dual_encoder, towers=towers)
  training = dataclasses.replace(
    given,
    model=dataclasses.replace(given.model, dual_encoder=dual_encoder),
    optimizer=dataclasses.replace(given.optimizer, frozen_parts=tuple(frozen)),
  )
  assert training.dual_encoder_learns == training.stops_on_collapse == learns
  told_to_go_on = dataclasses.replace(training, run=RunConfig(on_collapse="warn"))
  assert not told_to_go_on.stops_on_collapse


def test_an_evaluation_is_compiled_once_for_all_runs_of_a_model():
  given = make_pretraining()
  longer = dataclasses.replace(given, run=RunConfig(num_steps=7, seed=1))
  assert longer.evaluation_program() is given.evaluation_program()
  wider = dataclasses.replace(given, mesh=MeshConfig(accumulate_steps=2))
  assert wider.evaluation_program() is not given.evaluation_program()


@dataclasses.dataclass(frozen=True)
class Listed(MarginalLikelihood):
  """An objective with a list."""

  words: list[str] = dataclasses.field(default_factory=lambda: ["moss"])


def test_an_objective_that_cannot_be_hashed_is_named():
  Pretraining(objective=MarginalLikelihood() + Listed())  # evaluations are by the first
  with pytest.raises(ValueError, match=r"objective=Listed\(.*'list'.* make Listed a frozen"):
    Pretraining(objective=Listed() + MarginalLikelihood())


def test_a_frozen_dual_encoder_scores_what_the_posterior_proposes(
  params, batch, of_masked, float_tolerance
):
  made = make_pretraining()
  proposing = dataclasses.replace(made.retrieval, posterior=Bm25Posterior(num_passages=1))
  frozen = dataclasses.replace(
    made, retrieval=proposing, optimizer=OptimizerConfig(frozen_parts=("dual_encoder",))
  )
  learning, metrics = of_masked
  stale_BxK = np.full_like(batch.stale_scores_BxK, -np.inf)
  still, of_frozen = gradients(frozen.minimised, params, batch.replace(stale_scores_BxK=stale_BxK))
  # Two programs, which may add the losses of the 8 queries in other orders.
  close = pytest.approx(metrics["loss/total"].value, rel=float_tolerance(depth=8))
  assert of_frozen["loss/total"].value == close
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(still["dual_encoder"]))
  assert all(np.any(leaf) for leaf in jax.tree.leaves(learning["dual_encoder"]))
  reader = "knowledge_augmented_encoder"
  # Sums over as many wordpieces as are read, in any order.
  scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(learning[reader]))
  tolerance = float_tolerance(depth=batch.joint.mask.sum(), scale=scale)
  compare = functools.partial(np.testing.assert_allclose, rtol=0, atol=tolerance)
  jax.tree.map(compare, still[reader], learning[reader])


@pytest.mark.parametrize(
  ("started", "posterior", "num_steps", "warned"),
  [
    ((), None, 9, True),
    (("dual_encoder",), None, 9, False),
    ((), Bm25Posterior(num_passages=1), 9, False),
    ((), None, 0, False),
  ],
)
def test_a_dual_encoder_at_random_is_warned_of(started, posterior, num_steps, warned, caplog):
  pretraining = Pretraining(
    run=RunConfig(num_steps=num_steps), retrieval=RetrievalConfig(posterior=posterior)
  )
  with caplog.at_level("WARNING", logger="absl"):
    pretraining.warn_of_what_cannot_learn([Start("a", [(part, part) for part in started])])
  assert ("cannot help the reader" in caplog.text) == warned
