"""The closed forms agree with the program that they describe."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from realm_jax.devices.datatypes import Tokens
from realm_jax.models.bert import BertConfig, BertEncoder
from realm_jax.planning import model_costs

BERT = BertConfig(
  dtype="float32", vocab_size=500, hidden_size=256, num_layers=3, num_heads=4, mlp_size=1024
)
REMAT = dataclasses.replace(BERT, remat=True)


def work(**settings):
  given = {"bert": BERT, "sequences": 4, "length": 32, "positions": 32, "words": 0}
  return model_costs.Pass(**{**given, **settings})


@pytest.mark.parametrize("positions", [1, 5, 32])
def test_operations_are_those_of_the_program(positions):
  module = BertEncoder(BERT)
  tokens = Tokens(*(jax.ShapeDtypeStruct((4, 32), dtype) for dtype in ("int32", "bool", "int32")))
  wanted = jax.ShapeDtypeStruct((4, positions), jnp.int32)

  def read(params, tokens, wanted):
    return module.apply(params, tokens, deterministic=True, positions_FxQ=wanted)

  params = nn.unbox(
    jax.eval_shape(lambda t: module.init(jax.random.key(0), t, deterministic=True), tokens)
  )
  dots = jax.jit(read).lower(params, tokens, wanted).cost_analysis()["flops"]
  expected = model_costs.forward_flops(work(positions=positions))
  assert 0.98 < expected / dots <= 1.0  # elementwise operations are left out


def test_words_cost_the_vocabulary():
  extra = model_costs.forward_flops(work(words=2)) - model_costs.forward_flops(work())
  assert extra == 4 * 2 * 2 * 256 * (256 + 500)


def test_training_costs_three_times_forward_and_remat_four():
  plain, again = work(), work(bert=REMAT)
  forward = model_costs.forward_flops(plain)
  assert model_costs.training_flops([plain, plain]) == 6 * forward
  assert model_costs.training_flops([again]) == 4 * forward
  assert model_costs.model_flops([again]) == 3 * forward


def test_activations_grow_with_the_batch_and_shrink_with_remat():
  one = model_costs.activation_bytes([work()])
  assert model_costs.activation_bytes([work(sequences=8)]) == 2 * one
  assert model_costs.activation_bytes([work(bert=REMAT)]) < 0.6 * one
