"""Any encoder: its width, the parameters of each side, a few sequences at a time."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest

from examples.own_encoder import Bag, BagConfig
from realm_jax.checkpoints.saved_models import init_dual_encoder
from realm_jax.devices import partitioning
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.models.encoder import example_tokens, passage_encoder_program
from tests.configurations import tiny_bert


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


BERT = tiny_bert(vocab_size=64, max_length=512)
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
