import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from realm_jax.devices import partitioning
from realm_jax.models import dual_encoder, realm
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=12, max_length=10, initializer_range=0.3)
MODEL = realm.RealmPretrainingModel(
  dual_encoder.DualEncoderConfig(bert=BERT, projection_size=4), BERT
)


@pytest.fixture(scope="module")
def batch(make_retrieved_batch):
  return make_retrieved_batch(0, queries=8, passages=2, masks=2, vocab_size=12)


@pytest.mark.parametrize("model", [0, 3, 16])
def test_a_mesh_that_does_not_fit_is_refused(model):
  with pytest.raises(ValueError, match=f"model={model} does not divide 8 devices; give a size"):
    partitioning.make_mesh(model=model)


def test_sharding_follows_the_table():
  mesh = partitioning.make_mesh(model=2)
  spec = partitioning.sharding(mesh, "batch", None, "vocab").spec
  assert spec == PartitionSpec("data", None, "model")
  assert partitioning.sharding(mesh, "passages", "projection").spec == PartitionSpec(
    ("data", "model"), None
  )
  assert partitioning.batch_sharding(mesh).spec == PartitionSpec("data")


def test_fully_sharded_parameters_lie_on_both_axes():
  mesh = partitioning.make_mesh(model=2)
  for layout, spec in (
    ("replicated", PartitionSpec(None, "model")),
    ("fully_sharded", PartitionSpec("data", "model")),
  ):
    assert partitioning.sharding(mesh, "embed", "mlp", layout=layout).spec == spec
  with pytest.raises(ValueError, match="layout='zero'; choose one of"):
    partitioning.sharding(mesh, "embed", layout="zero")


class Chip:
  """A device of an absent slice."""

  def __init__(self, id, *, process_index, slice_index=0, kind="TPU v4"):
    self.id, self.process_index, self.slice_index = id, process_index, slice_index
    self.platform, self.device_kind = "tpu", kind


def test_rows_follow_the_processes_and_lie_within_one():
  # A 4 x 4 torus of 2 x 2 hosts, whose devices libtpu lists row by row.
  owners = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
  torus = [Chip(id, process_index=owner) for id, owner in enumerate(owners)]
  for model in (1, 2, 4):
    rows = partitioning.make_mesh(model=model, devices=torus).devices
    found = [{chip.process_index for chip in row} for row in rows]
    assert found == [{row * model // 4} for row in range(16 // model)]
  with pytest.raises(ValueError, match=r"model=8: a copy of the model would span processes \[0, 1"):
    partitioning.make_mesh(model=8, devices=torus)


def test_a_training_on_several_slices_is_refused():
  slices = [Chip(id, process_index=id // 2, slice_index=id // 4) for id in range(8)]
  with pytest.raises(ValueError, match="belong to 2 TPU slices, and a training runs on one"):
    partitioning.make_mesh(devices=slices)
  mesh = partitioning.make_mesh(devices=slices[4:6])
  assert dict(mesh.shape) == {"data": 2, "model": 1}


@pytest.mark.parametrize(
  ("kind", "hosts", "sizes"),
  [("TPU v4", 2, [4]), ("TPU v5 lite", 1, [4]), ("TPU v5 lite", 2, [1, 1, 1, 1])],
)
def test_a_process_alone_uses_its_own_devices_as_its_slice_allows(kind, hosts, sizes):
  slice_ = [Chip(id, process_index=id % hosts, kind=kind) for id in range(4 * hosts)]
  meshes = partitioning.local_meshes(slice_, process=0)
  assert [mesh.size for mesh in meshes] == sizes
  assert {d.process_index for mesh in meshes for d in mesh.devices.flat} == {0}


def make_state(batch):
  params = MODEL.init(jax.random.key(0), batch, deterministic=True)["params"]
  return {"step": np.int32(0), "params": params, "optimizer": optax.adamw(1e-3).init(params)}


def test_a_whole_train_state_is_laid_out(batch):
  """Optimizer slots are sharded like their parameters; counters are replicated."""
  mesh = partitioning.make_mesh(model=2)
  shardings = partitioning.tree_shardings(mesh, jax.eval_shape(make_state, batch))
  state = jax.jit(lambda batch: nn.unbox(make_state(batch)), out_shardings=shardings)(batch)
  encoder = state["params"]["knowledge_augmented_encoder"]
  assert encoder["mlm_bias"].sharding.spec == PartitionSpec("model")
  kernel = encoder["bert"]["layers_0"]["mlp_in"]["kernel"]
  assert kernel.sharding.shard_shape(kernel.shape) == (8, 6)
  adam = state["optimizer"][0]
  for slots in (adam.mu, adam.nu):
    assert jax.tree.map(lambda x: x.sharding, slots) == shardings["params"]
  assert state["step"].sharding.is_fully_replicated and adam.count.sharding.is_fully_replicated


def test_a_dimension_that_does_not_divide_stays_whole_and_is_named(batch, caplog):
  mesh = partitioning.make_mesh(model=4)  # 12 words and 12 units divide, 2 heads do not
  shardings = partitioning.tree_shardings(mesh, jax.eval_shape(make_state, batch))["params"]
  layer = shardings["knowledge_augmented_encoder"]["bert"]["layers_0"]
  assert layer["attention"]["query"]["kernel"].spec == PartitionSpec(None, None, None)
  assert layer["mlp_in"]["kernel"].spec == PartitionSpec(None, "model")
  assert "['layers_0']['attention']['query']['kernel'] heads=2" in caplog.text
  assert "vocab" not in caplog.text
