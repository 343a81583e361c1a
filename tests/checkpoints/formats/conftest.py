"""Small random networks of ours, and their weights under Hugging Face's names."""

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.checkpoints.formats import huggingface_names, imported_model
from realm_jax.devices import datatypes
from realm_jax.models import dual_encoder, knowledge_augmented_encoder, open_qa
from tests.configurations import tiny_bert

CONFIG = tiny_bert(vocab_size=13, num_layers=2, max_length=10)


class Network:
  """A network with random parameters `params`, flat by path."""

  def __init__(self, module, heads, *inputs, seed):
    ids = np.ones((1, 4), np.int32)
    tokens = datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)
    shapes = jax.eval_shape(
      lambda: nn.unbox(module.init(jax.random.key(0), tokens, *inputs, deterministic=True))
    )
    random = np.random.default_rng(seed)
    self.module, self.heads = module, heads
    self.params = {
      path: random.normal(0, 0.3, leaf.shape).astype(np.float32)
      for path, leaf in flax.traverse_util.flatten_dict(shapes["params"], sep="/").items()
    }

  def weights(self, stem, owner=""):
    """Returns Hugging Face's arrays; `stem` prefixes BERT's names, `owner` those of the heads."""
    names = huggingface_names.prefixed(
      huggingface_names.encoder(CONFIG.num_layers), here="bert/", there=stem
    )
    for head in self.heads:
      there = stem if head is huggingface_names.POOLER else owner
      names |= huggingface_names.prefixed(head, there=there)
    return {
      theirs: huggingface_names.to_theirs(path, self.params[path])
      for path, theirs in names.items()
      if path in self.params
    }

  def under(self, path):
    """Returns the parameters by path in a checkpoint."""
    return {f"{path}/{name}": value for name, value in self.params.items()}


def fill(model, expected):
  """Returns an imported model's parameters for a model with these, and the missing ones."""
  shapes = {path: value.shape for path, value in expected.items()}
  return imported_model.fill(shapes, model.weights)


def assert_same(params, expected):
  assert params.keys() == expected.keys()
  for path, value in expected.items():
    np.testing.assert_array_equal(params[path], value, err_msg=path)


def assert_fills(model, *networks):
  """Checks that an imported model has all parameters of networks: pairs of path and `Network`."""
  expected = {}
  for path, network in networks:
    expected |= network.under(path)
  params, missing = fill(model, expected)
  assert missing == []
  assert_same(params, expected)


@pytest.fixture(scope="session")
def bert_config():
  return CONFIG


@pytest.fixture(scope="session")
def make_tower():
  def make(seed):
    config = dual_encoder.DualEncoderConfig(
      bert=CONFIG, projection_size=4, layer_norm_epsilon=1e-12
    )
    return Network(
      dual_encoder.Tower(config),
      [huggingface_names.POOLER, huggingface_names.PROJECTION],
      seed=seed,
    )

  return make


@pytest.fixture(scope="session")
def make_masked_lm():
  def make(seed):
    module = knowledge_augmented_encoder.KnowledgeAugmentedEncoder(CONFIG)
    return Network(module, [huggingface_names.MASKED_LM], jnp.zeros((1, 1), jnp.int32), seed=seed)

  return make


@pytest.fixture(scope="session")
def make_reader():
  def make(seed):
    config = open_qa.SpanReaderConfig(bert=CONFIG, max_span_width=3, span_hidden_size=3)
    return Network(open_qa.SpanReader(config), [huggingface_names.SPANS], seed=seed)

  return make
