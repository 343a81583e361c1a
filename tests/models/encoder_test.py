"""Any encoder: its width, the parameters of each side, sequences in buckets and a few at a time."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.own_encoder import Bag, BagConfig
from realm_jax.checkpoints.saved_models import init_dual_encoder
from realm_jax.devices import partitioning
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.models.encoder import example_tokens, in_buckets, passage_encoder_program


class Shared(Bag):
  """Embeds passages with the vectors of queries."""

  def encode_passage(self, tokens, *, deterministic):
    return self.encode_query(tokens, deterministic=deterministic)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedConfig(BagConfig):
  def make(self):
    return Shared(self)


def test_each_side_has_the_parameters_that_it_reads():
  apart, shared = (kind(vocab_size=5, width=3) for kind in (BagConfig, SharedConfig))
  assert apart.embedding_size == shared.embedding_size == 3
  params = {"query_words": {"embedding": 1}, "passage_words": {"embedding": 2}}
  assert apart.params_of("passage", params) == {"passage_words": {"embedding": 2}}
  assert shared.params_of("passage", params) == {"query_words": {"embedding": 1}}
  assert apart.separated()[0] == apart
  with pytest.raises(ValueError, match=r"SharedConfig .*\['query_words'\]"):
    shared.separated()


def encode(weights_V, tokens, scale_Fx1):
  """Sums weights over each sequence; also returns the width of the sequences."""
  assert tokens.shape[-1] in (3, 6, 9)
  total_F = jnp.sum(jnp.where(tokens.mask, weights_V[tokens.ids], 0.0), axis=1)
  return total_F[:, None] * scale_Fx1


def test_rows_keep_their_places_and_their_gradients(make_tokens):
  random = np.random.default_rng(0)
  tokens = make_tokens(random, 7, 9, vocab_size=20)
  lengths = np.array([9, 2, 6, 3, 5, 3, 2])
  mask = np.arange(9) < lengths[:, None]
  tokens = tokens.replace(mask=mask)
  weights_V = random.normal(size=20).astype(np.float32)
  scale_Fx1 = random.normal(size=(7, 1)).astype(np.float32)

  def loss(weights_V, scale_Fx1, buckets):
    outputs_Fx1 = in_buckets(
      lambda *rows: encode(weights_V, *rows), tokens, scale_Fx1, buckets=buckets
    )
    return jnp.sum(outputs_Fx1**3), outputs_Fx1

  results = [
    jax.value_and_grad(loss, (0, 1), has_aux=True)(weights_V, scale_Fx1, buckets)
    for buckets in ((), ((4, 3), (2, 6), (1, 9)))
  ]
  # Sums of up to nine numbers below 4, cubed and multiplied.
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *results)


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
  init = jax.jit(lambda: init_dual_encoder(DualEncoder(CONFIG), jax.random.key(0)))
  params = nn.unbox(init())
  meshes = [partitioning.make_mesh(devices=jax.devices()[:count]) for count in (1, 2)]
  in_groups, at_once = (passage_encoder_program(CONFIG, mesh)(params, tokens) for mesh in meshes)
  assert in_groups.shape == (rows, 4)
  atol = float_tolerance(depth=encoder_depth(BERT) + length, scale=4)
  np.testing.assert_allclose(in_groups, at_once, atol=atol)
