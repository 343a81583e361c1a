import dataclasses
import functools

import jax
import numpy as np
import pytest

from realm_jax.models.bert import BertConfig, BertEncoder
from realm_jax.models.token_tagger import TokenTagger, TokenTaggerConfig

CONFIG = TokenTaggerConfig(
  bert=BertConfig(
    dtype="float32",
    vocab_size=20,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    mlp_size=16,
    max_length=12,
  ),
  num_tags=3,
)


@pytest.fixture(scope="module")
def batch(make_tokens):
  return make_tokens(np.random.default_rng(0), 4, 10, vocab_size=20)


@pytest.fixture
def atol(float_tolerance, encoder_depth):
  """For logits: sums over hidden vectors, whose norm is below the root of their size."""
  return float_tolerance(depth=encoder_depth(CONFIG.bert) + CONFIG.bert.hidden_size)


@functools.partial(jax.jit, static_argnames="module")
def init_with_output(module, batch):
  return module.init_with_output(jax.random.key(0), batch, deterministic=True)


@functools.partial(jax.jit, static_argnames=("module", "deterministic"))
def apply(module, variables, tokens, *, deterministic=True, seed=0):
  rngs = {"dropout": jax.random.key(seed)}
  return module.apply(variables, tokens, deterministic=deterministic, rngs=rngs)


def test_logits_are_a_linear_function_of_the_encoder(batch, atol):
  logits, variables = init_with_output(TokenTagger(CONFIG), batch)
  unboxed = variables["params"]
  classifier = {name: leaf.value for name, leaf in unboxed["classifier"].items()}
  hidden = apply(BertEncoder(CONFIG.bert), {"params": unboxed["bert"]}, batch)
  assert logits.shape == (4, 10, 3)
  kernel, bias = (np.asarray(classifier[name]) for name in ("kernel", "bias"))
  expected = np.asarray(hidden) @ kernel + bias
  np.testing.assert_allclose(logits, expected, atol=atol)


def test_dropout_draws_and_padding_changes_nothing(batch, atol):
  model = TokenTagger(CONFIG)
  _, variables = init_with_output(model, batch)
  other = dataclasses.replace(batch, ids=np.where(batch.mask, batch.ids, 7))
  np.testing.assert_allclose(
    np.asarray(apply(model, variables, batch))[batch.mask],
    np.asarray(apply(model, variables, other))[batch.mask],
    atol=atol,
  )
  one, two = (apply(model, variables, batch, deterministic=False, seed=k) for k in range(2))
  assert np.abs(one - two).max() > 1e-3


def test_bfloat16_encoders_give_float32_logits(batch):
  config = dataclasses.replace(CONFIG, bert=dataclasses.replace(CONFIG.bert, dtype="bfloat16"))
  logits, _ = init_with_output(TokenTagger(config), batch)
  assert logits.dtype == np.float32


@pytest.mark.parametrize(
  ("setting", "message"),
  [
    ({"num_tags": 0}, "num_tags=0; it must be at least 1"),
    ({"dropout_rate": 1.0}, r"dropout_rate=1\.0; it must lie in \[0, 1\)"),
  ],
)
def test_settings_that_cannot_work_are_refused(setting, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(CONFIG, **setting)
