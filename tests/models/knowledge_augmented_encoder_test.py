"""Copying: a new reader finds words between the same words; probabilities are a mixture."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from realm_jax.devices.datatypes import Tokens
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder, with_copies
from tests.configurations import tiny_bert

CLS, SEP, MASK, VOCAB = 1, 2, 3, 60
CONFIG = tiny_bert(
  vocab_size=VOCAB,
  hidden_size=64,
  num_layers=2,
  mlp_size=64,
  max_length=32,
  initializer_range=0.06,
  copies=True,
)
QUERY = [CLS, 10, 11, MASK, 12, 13, SEP]
PASSAGE = [20, 21, 10, 11, 50, 12, 13, 22, 23, 51, 24, SEP]


def joint(*passages, length=24):
  rows = [QUERY + passage for passage in passages]
  ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int32)
  segments = np.array([[0] * len(QUERY) + [1] * (length - len(QUERY))] * len(rows), np.int32)
  return Tokens(ids=ids, mask=ids > 0, segments=segments * (ids > 0))


@pytest.fixture(scope="module")
def params():
  module = KnowledgeAugmentedEncoder(CONFIG)
  init = jax.jit(functools.partial(module.init, deterministic=True))
  return nn.unbox(init(jax.random.key(0), *inputs(PASSAGE)))["params"]


def inputs(*passages, length=24):
  return joint(*passages, length=length), np.full((len(passages), 1), QUERY.index(MASK))


def logits(params, *passages, config=CONFIG, length=24, buckets=()):
  return encode(config, buckets, params, *inputs(*passages, length=length))


@functools.partial(jax.jit, static_argnums=(0, 1))
def encode(config, buckets, params, tokens, positions):
  module = KnowledgeAugmentedEncoder(config)
  return module.apply({"params": params}, tokens, positions, deterministic=True, buckets=buckets)


def test_a_new_reader_copies_the_word_between_the_same_words(params):
  (logits_1xV,) = logits(params, PASSAGE)
  assert np.argmax(logits_1xV) == 50


def test_words_of_the_query_and_padding_are_not_copied(params):
  without = {name: value for name, value in params.items() if name != "copying"}
  plain = dataclasses.replace(CONFIG, copies=False)
  # The [SEP] that ends a null passage is all there is to copy.
  changed = np.abs(logits(params, [SEP]) - logits(without, [SEP], config=plain))[0, 0] > 1e-4
  assert np.flatnonzero(changed).tolist() in ([], [SEP])


def test_probabilities_add_up_those_of_the_vocabulary_and_of_each_position():
  random = np.random.default_rng(0)
  logits_FxMxV = random.normal(size=(2, 3, 7)).astype(np.float32)
  scores_FxMxT = random.normal(size=(2, 3, 5)).astype(np.float32)
  ids_FxT = random.integers(0, 7, size=(2, 5))
  expected = np.exp(logits_FxMxV)
  for f in range(2):
    for t in range(5):
      expected[f, :, ids_FxT[f, t]] += np.exp(scores_FxMxT[f, :, t])
  found = with_copies(jnp.asarray(logits_FxMxV), jnp.asarray(scores_FxMxT), ids_FxT)
  np.testing.assert_allclose(np.exp(found), expected, rtol=1e-5)


def test_neither_padding_nor_buckets_change_what_is_copied(params):
  passages = PASSAGE, PASSAGE[:5] + [SEP]
  expected = logits(params, *passages)
  for changed in ({"length": 28}, {"buckets": ((1, 14), (1, 24))}):
    np.testing.assert_allclose(logits(params, *passages, **changed), expected, atol=1e-4)


def test_only_a_reader_copies():
  with pytest.raises(ValueError, match="copies=True .* a dual encoder's BERT"):
    DualEncoderConfig(bert=CONFIG)
