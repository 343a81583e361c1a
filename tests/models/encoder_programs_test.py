import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax import partitioning
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig, Tower
from realm_jax.models.encoder_programs import is_one_cpu, passage_encoder_program
from realm_jax.saved.saved_models import example_tokens

BERT = BertConfig(
  dtype="float32", vocab_size=64, hidden_size=8, num_layers=1, num_heads=2, mlp_size=12
)
CONFIG = DualEncoderConfig(bert=BERT, projection_size=4)


@pytest.mark.parametrize(("rows", "length"), [(12, 300), (7, 300), (1, 9), (3, 512), (131, 25)])
def test_a_few_rows_at_a_time_are_embedded_as_all_at_once(
  rows, length, float_tolerance, encoder_depth
):
  tokens = example_tokens(rows, length)
  ids = np.random.default_rng(0).integers(1, 64, (rows, length)).astype(np.int32)
  tokens = tokens.replace(ids=ids, mask=np.arange(length) < np.arange(1, rows + 1)[:, None])
  params = nn.unbox(
    jax.jit(lambda: Tower(CONFIG).init(jax.random.key(0), tokens, deterministic=True))()
  )
  at_once, in_groups = (
    passage_encoder_program(CONFIG, one_cpu=one_cpu)(params["params"], tokens)
    for one_cpu in (False, True)
  )
  assert in_groups.shape == (rows, 4)
  atol = float_tolerance(depth=encoder_depth(BERT) + length, scale=4)
  np.testing.assert_allclose(in_groups, at_once, atol=atol)


def test_one_cpu_is_a_mesh_of_one_device():
  assert is_one_cpu(partitioning.make_mesh(devices=jax.devices()[:1]))
  assert not is_one_cpu(partitioning.make_mesh())
