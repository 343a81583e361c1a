"""A reader that cannot read teaches the retriever nothing, and is taught to read meanwhile."""

import pytest

from realm_jax import partitioning
from realm_jax.saved import saved_models
from realm_jax.training.guard import GuardConfig

pytestmark = pytest.mark.timeout(600)
STEPS = 6


def moved(world, name):
  """Returns which of the two encoders moved."""
  mesh = partitioning.make_mesh()
  before, after = (
    saved_models.load(str(world / name / "checkpoints"), step=step).pretraining_model(mesh)[1]
    for step in (0, STEPS)
  )
  digest = saved_models.params_digest
  return {part for part in before if digest(before[part]) != digest(after[part])}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_recipe_that_collapsed_leaves_the_retriever_as_it_was(world, start, rows, enabled):
  name = f"guarded_{enabled}"
  own_text = {"corpus": str(world / "passages"), "num_steps": STEPS}
  start(name, guard=GuardConfig(enabled=enabled, window=2, measure_every=2), **own_text)
  both = {"knowledge_augmented_encoder", "dual_encoder"}
  assert moved(world, name) == both - ({"dual_encoder"} if enabled else set())
  said = [row.get("guard", "") for row in rows(name)]
  taught = [row.get("retrieval/taught_share") for row in rows(name)]
  if enabled:
    assert all(words.startswith("held: ") for words in said)
    assert taught[1] > 0 == taught[2]  # every second batch teaches to read
  else:
    assert set(said) == {""} and set(taught) == {None}
