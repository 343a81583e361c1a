"""Checkpoints are restored on any mesh; mismatches are rejected in one line."""

import os
import re
import shutil

import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files
from realm_jax.devices import partitioning
from realm_jax.training.run import optimizer, train_program

OPTIMIZER = optimizer.make_optimizer(optimizer.OptimizerConfig(), num_steps=100)


def init_params(key, *, width=8):
  keys = jax.random.split(key, 3)

  def kernel(key, axes):
    return nn.LogicallyPartitioned(jax.random.normal(key, (4, width)), axes)

  return {
    "dual_encoder": {
      "tower": {"kernel": kernel(keys[0], ("embed", "mlp"))},
      "other_tower": {"kernel": kernel(keys[1], ("embed", "mlp"))},
    },
    "reader": {"kernel": kernel(keys[2], ("embed", "mlp")), "bias": jax.numpy.ones(3)},
  }


def make_state(*, seed=0, model=2, init=init_params):
  """Returns a state on a mesh, and its shapes with shardings."""

  def create():
    return train_program.new_state(init, OPTIMIZER, seed=seed)

  boxed = jax.eval_shape(create)
  shardings = partitioning.tree_shardings(partitioning.make_mesh(model=model), boxed)
  abstract = jax.tree.map(
    lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
    nn.unbox(boxed),
    shardings,
  )
  return jax.jit(lambda: nn.unbox(create()), out_shardings=shardings)(), abstract


def assert_same_arrays(restored, expected):
  def check(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)

  assert jax.tree.structure(restored) == jax.tree.structure(expected)
  jax.tree.map(check, restored, expected)


def save(directory, state, *, step=3, input=None, metadata=None):
  with orbax_files.Checkpointer(directory) as checkpointer:
    checkpointer.save(step, state, input=input or {}, metadata=metadata or {})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """A directory with one checkpoint, step 3, of `make_state()`."""
  directory = tmp_path_factory.mktemp("saved")
  save(directory, make_state()[0], metadata={"model": {"width": 8}, "generation": 5})
  return directory


@pytest.mark.parametrize("model", [2, 4])
def test_a_state_comes_back_with_the_shardings_asked_for(saved, model):
  state, _ = make_state()
  _, abstract = make_state(model=model)
  with orbax_files.Checkpointer(saved) as checkpointer:
    restored = checkpointer.restore(abstract)
  assert_same_arrays(restored.state, state)
  wanted = jax.tree.map(lambda leaf: leaf.sharding, abstract)
  assert jax.tree.map(lambda leaf: leaf.sharding, restored.state) == wanted
  kernel = restored.state.params["reader"]["kernel"]
  assert kernel.addressable_shards[0].data.shape == (4, 8 // model)
  assert restored.metadata == {"model": {"width": 8}, "generation": 5}
  assert restored.input == {}


def test_input_comes_back_to_the_bit(tmp_path):
  random = np.random.default_rng(0)
  input = {
    "position": {
      "iterator.index": random.integers(0, 256, 100).astype(np.uint8),
      "iterator.data-00000-of-00001": random.integers(0, 256, 3000).astype(np.uint8),
    },
    "batch": {
      "source_uid": np.array([2**62 + 1, -(2**40), 0]),
      "query_mask": np.array([[True, False], [False, True]]),
      "passage_ids": np.array([[-1, 7], [-2, 70_000]], np.int32),
      "stale_scores": random.normal(size=(2, 2)).astype(np.float32),
    },
  }
  state, abstract = make_state()
  save(tmp_path, state, input=input)
  with orbax_files.Checkpointer(tmp_path) as checkpointer:
    restored = checkpointer.restore(abstract).input
  assert_same_arrays(restored, input)


def test_saving_a_step_twice_is_harmless(tmp_path):
  first, abstract = make_state(seed=0)
  second, _ = make_state(seed=1)
  with orbax_files.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(3, first, input={}, metadata={"saved": 1})
    checkpointer.save(3, second, input={}, metadata={"saved": 2})  # while the first is under way
    checkpointer.wait()
    checkpointer.save(3, second, input={}, metadata={"saved": 3})
    checkpointer.wait()
    restored = checkpointer.restore(abstract)
  assert restored.metadata == {"saved": 1}
  assert_same_arrays(restored.state, first)


def test_a_saved_state_may_be_donated_at_once(tmp_path):
  state, abstract = make_state()
  expected = jax.tree.map(np.array, state)
  add_one = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
  with orbax_files.Checkpointer(tmp_path) as checkpointer:
    checkpointer.save(3, state, input={}, metadata={})
    add_one(state)
    checkpointer.wait()
    restored = checkpointer.restore(abstract)
  assert_same_arrays(jax.tree.map(np.array, restored.state), expected)


def test_an_unfinished_checkpoint_is_invisible(tmp_path):
  state, abstract = make_state()
  save(tmp_path, state)
  shutil.copytree(tmp_path / "3", tmp_path / "7.orbax-checkpoint-tmp")
  assert orbax_files.steps(tmp_path) == [3]
  assert orbax_files.resolve(tmp_path).name == "3"
  with orbax_files.Checkpointer(tmp_path) as checkpointer:
    assert checkpointer.latest_step() == 3
    assert checkpointer.restore(abstract) is not None


def test_steps_and_resolve(tmp_path, saved):
  assert orbax_files.steps(tmp_path / "absent") == []
  with pytest.raises(FileNotFoundError, match=f"no checkpoint in {tmp_path}; give WORKDIR/check"):
    orbax_files.resolve(tmp_path)
  (tmp_path / "run").mkdir()
  (tmp_path / "run" / "checkpoints").symlink_to(saved)
  with pytest.raises(FileNotFoundError, match=r"in \S*/run; did you mean \S*/run/checkpoints\?"):
    orbax_files.resolve(tmp_path / "run")
  assert orbax_files.resolve(saved) == orbax_files.resolve(saved, step=3) == saved / "3"
  with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 4 in .*; it has \[3\]"):
    orbax_files.resolve(saved, step=4)


def assert_params_are_those_saved(directory):
  state, abstract = make_state()
  assert_same_arrays(orbax_files.restore_params(directory / "3", abstract.params), state.params)


def test_a_flipped_bit_in_any_file_is_found(saved, tmp_path):
  names = [file.relative_to(saved) for file in sorted(saved.glob("3/**/*")) if file.is_file()]
  harmless = []
  for number, name in enumerate(names):
    directory = tmp_path / str(number)
    shutil.copytree(saved, directory)
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1 << number % 8
    (directory / name).write_bytes(content)
    try:
      orbax_files.resolve(directory)
    except orbax_files.DamagedCheckpointError as error:
      assert name.name in str(error) or name.name == "digests"
    else:
      assert_params_are_those_saved(directory)
      assert restore(directory, make_state()[1]) is not None
      harmless.append(str(name))
  # What Orbax writes last, and reads for itself alone.
  assert harmless == [
    "3/_CHECKPOINT_METADATA",
    "3/commit_success.txt",
    "3/metadata/commit_success.txt",
  ]
  assert len(names) > 12


def largest_file(step):
  return max((file for file in step.rglob("*") if file.is_file()), key=lambda f: f.stat().st_size)


@pytest.mark.parametrize(
  ("damage", "fault"),
  [
    (lambda step: (step / "metadata/metadata").write_text(""), "metadata/metadata is not what was"),
    (lambda step: (step / "metadata/digests").write_text("{"), "metadata/digests is not what was"),
    (lambda step: (step / "metadata/digests").unlink(), "metadata/digests is missing"),
    (lambda step: shutil.rmtree(step / "metadata"), "metadata/metadata is missing"),
    (lambda step: shutil.rmtree(step / "state"), r"state/\S+ is missing"),
    (lambda step: os.truncate(largest_file(step), 100), r"state/\S+ is not what was written"),
    (lambda step: [shutil.rmtree(step), step.mkdir()], "metadata/metadata is missing"),
  ],
)
def test_a_damaged_newest_checkpoint_is_named_with_the_way_back(
  saved, tmp_path, caplog, damage, fault
):
  state, abstract = make_state()
  shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
  save(tmp_path, state, step=6)
  damage(tmp_path / "6")
  named = rf"checkpoint {tmp_path}/6 is damaged \({fault}.*\)"
  with pytest.raises(orbax_files.DamagedCheckpointError, match=rf"^{named}; .*--resume_from=3$"):
    restore(tmp_path, abstract)
  assert orbax_files.resolve(tmp_path) == orbax_files.resolve(tmp_path) == tmp_path / "3"
  (told,) = [message for message in caplog.messages if "skipped" in message]
  assert re.fullmatch(f"{named} and is skipped", told)
  with pytest.raises(orbax_files.DamagedCheckpointError, match=named):
    orbax_files.resolve(tmp_path, step=6)
  with pytest.raises(orbax_files.DamagedCheckpointError, match=named):
    orbax_files.restore_params(tmp_path / "6", abstract.params)
  damage(tmp_path / "3")
  with pytest.raises(orbax_files.DamagedCheckpointError, match="none before it is intact"):
    restore(tmp_path, abstract)
  with pytest.raises(orbax_files.DamagedCheckpointError, match=named):
    orbax_files.resolve(tmp_path)


def refusal(call, *arguments):
  with pytest.raises(ValueError) as error:
    call(*arguments)
  message = str(error.value)
  assert "\n" not in message
  assert "3 is a checkpoint of another model: " in message
  return message


def restore(directory, abstract):
  with orbax_files.Checkpointer(directory) as checkpointer:
    return checkpointer.restore(abstract)


def test_another_shape_is_refused(saved):
  _, wider = make_state(init=lambda key: init_params(key, width=16))
  wrong = "params/dual_encoder/tower/kernel (4, 8) instead of (4, 16)"
  message = refusal(orbax_files.restore_params, saved / "3", wider.params)
  assert wrong in message
  # Three kernels, and the two moments of each.
  message = refusal(restore, saved, wider)
  assert "; and 5 more" in message
