"""BERT against its publication, in every setting; its norm against autodiff of the definition."""

import dataclasses
import functools
import inspect
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from realm_jax.devices import partitioning
from realm_jax.models import attention_kernels, bert, dropout
from tests.configurations import tiny_bert

CONFIG = tiny_bert(num_layers=2, max_length=10, initializer_range=0.5, dropout_rate=0.1)


@pytest.fixture(scope="module")
def tokens(make_tokens):
  return make_tokens(np.random.default_rng(0), 3, 7, vocab_size=CONFIG.vocab_size)


@pytest.fixture(scope="module")
def params(tokens):
  """Initialised, then perturbed, so that no bias is 0 and no scale is 1."""
  init = functools.partial(bert.BertEncoder(CONFIG).init, deterministic=True)
  params = nn.unbox(jax.jit(init)(jax.random.key(0), tokens))
  random = np.random.default_rng(1)
  return jax.tree.map(lambda leaf: leaf + 0.1 * random.normal(size=leaf.shape), params)["params"]


@pytest.fixture(scope="module")
def atol(float_tolerance, encoder_depth):
  """For hidden vectors, which the last layer norm keeps below the root of their size."""
  return float_tolerance(depth=encoder_depth(CONFIG), scale=3)


@functools.partial(jax.jit, static_argnames="config")
def encode(params, tokens, config=CONFIG, positions_FxQ=None):
  return bert.BertEncoder(config).apply(
    {"params": params}, tokens, deterministic=True, positions_FxQ=positions_FxQ
  )


def numpy_bert(params, tokens, *, gelu):
  """The published encoder, one sequence and one head at a time, in float64."""

  def norm(params, x):
    centred = x - x.mean(-1, keepdims=True)
    return (
      params["scale"] * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
      + (params["bias"])
    )

  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  sequences = []
  for ids, mask, segments in zip(tokens.ids, tokens.mask, tokens.segments, strict=True):
    x = params["word_embedding"]["embedding"][ids] + params["segment_embedding"][segments]
    x = norm(params["embedding_norm"], x + params["position_embedding"][: len(ids)])
    for i in range(CONFIG.num_layers):
      layer = params[f"layers_{i}"]
      attention, attended = layer["attention"], layer["attention"]["output"]["bias"]
      for h in range(CONFIG.num_heads):
        query, key, value = (
          x @ attention[name]["kernel"][:, h] + attention[name]["bias"][h]
          for name in ("query", "key", "value")
        )
        logits = np.where(mask[None], query @ key.T / np.sqrt(query.shape[-1]), -np.inf)
        attended = attended + special.softmax(logits, -1) @ value @ attention["output"]["kernel"][h]
      x = norm(layer["attention_norm"], x + attended)
      inner = gelu(x @ layer["mlp_in"]["kernel"] + layer["mlp_in"]["bias"])
      x = norm(layer["mlp_norm"], x + inner @ layer["mlp_out"]["kernel"] + layer["mlp_out"]["bias"])
    sequences.append(x)
  return np.stack(sequences)


@pytest.mark.parametrize(
  ("activation", "gelu"),
  [
    ("gelu_erf", lambda x: x * special.ndtr(x)),
    ("gelu_tanh", lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
  ],
)
def test_is_the_published_encoder(params, tokens, atol, activation, gelu):
  hidden_FxLxD = encode(params, tokens, dataclasses.replace(CONFIG, activation=activation))
  np.testing.assert_allclose(hidden_FxLxD, numpy_bert(params, tokens, gelu=gelu), atol=atol)


def test_padding_changes_nothing(params, tokens, atol):
  pad = ((0, 0), (0, 3))
  longer = jax.tree.map(lambda leaf: np.pad(leaf, pad), tokens)
  other_ids = np.where(longer.mask, longer.ids, 5)
  hidden_FxLxD = encode(params, tokens)
  longer_FxLxD = encode(params, longer.replace(ids=other_ids))
  np.testing.assert_allclose(longer_FxLxD[:, :7][tokens.mask], hidden_FxLxD[tokens.mask], atol=atol)


def test_bfloat16_is_close_and_keeps_float32_parameters(params, tokens):
  config = dataclasses.replace(CONFIG, dtype="bfloat16")
  hidden_FxLxD = encode(params, tokens, config)
  assert hidden_FxLxD.dtype == jnp.bfloat16
  np.testing.assert_allclose(
    hidden_FxLxD.astype(np.float32)[tokens.mask], encode(params, tokens)[tokens.mask], atol=0.1
  )
  variables = jax.eval_shape(
    lambda: nn.unbox(bert.BertEncoder(config).init(jax.random.key(0), tokens, deterministic=True))
  )
  assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}


def loss(params, tokens, config):
  hidden_FxLxD = inspect.unwrap(encode)(params, tokens, config)
  return jnp.sum(hidden_FxLxD[..., 0] ** 2 * tokens.mask), hidden_FxLxD


def gradient_and_value(params, tokens, config=CONFIG):
  return jax.jit(jax.grad(functools.partial(loss, config=config), has_aux=True))(params, tokens)


@pytest.fixture(scope="module")
def plain(params, tokens):
  """Gradient and hidden vectors of plain attention, nothing of which is computed twice."""
  return gradient_and_value(params, tokens)


def assert_close(gradient, expected, atol):
  largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
  compare = functools.partial(np.testing.assert_allclose, atol=largest * atol)
  jax.tree.map(compare, gradient, expected)


def test_remat_is_there_and_gives_the_same_gradient(params, plain, tokens, atol):
  remat = dataclasses.replace(CONFIG, remat=True)
  assert_close(gradient_and_value(params, tokens, remat)[0], plain[0], atol)
  jaxprs = [str(jax.make_jaxpr(loss, static_argnums=2)(params, tokens, c)) for c in (CONFIG, remat)]
  assert [jaxpr.count("remat2[") for jaxpr in jaxprs] == [0, CONFIG.num_layers]


@pytest.mark.parametrize("attention", ["fused", "by lengths"])
def test_each_kernel_is_plain_attention_in_value_and_gradient(
  params, plain, tokens, atol, attention, monkeypatch
):
  calls = []

  def by_lengths(*factors):
    calls.append(factors)
    return attention_kernels.by_lengths(*factors, implementation="xla")

  if attention == "by lengths":
    kernels = types.SimpleNamespace(choose=lambda *_, **__: "cudnn", by_lengths=by_lengths)
    monkeypatch.setattr(bert, "attention_kernels", kernels)
  config = dataclasses.replace(CONFIG, attention="fused")
  gradient, found_FxLxD = gradient_and_value(params, tokens, config)
  assert len(calls) == CONFIG.num_layers * (attention == "by lengths")
  np.testing.assert_allclose(found_FxLxD[tokens.mask], plain[1][tokens.mask], atol=atol)
  assert_close(gradient, plain[0], atol)


class Chip:
  """An absent device."""

  device_kind, num_cores, process_index, id = "TPU v4", 1, 0, 0

  def __init__(self, platform):
    self.platform = platform


def traced_for(platform, function, *arguments):
  """Returns the jaxpr and the result of a function traced for a mesh of one chip."""
  mesh = partitioning.make_mesh(devices=[Chip(platform)])
  return jax.make_jaxpr(partitioning.on_mesh(mesh, function), return_shape=True)(*arguments)


@pytest.mark.parametrize(("platform", "layers"), [("tpu", CONFIG.num_layers), ("cpu", 0)])
def test_attention_is_fused_where_a_mesh_is_of_tpus(params, tokens, platform, layers):
  jaxpr, _ = traced_for(platform, functools.partial(inspect.unwrap(encode), params), tokens)
  assert str(jaxpr).count("shard_map[") == layers


def test_dropout_acts_only_when_not_deterministic(params, tokens):
  @functools.partial(jax.jit, static_argnames="config")
  def apply(seed, config=CONFIG):
    return bert.BertEncoder(config).apply(
      {"params": params}, tokens, deterministic=False, rngs={"dropout": jax.random.key(seed)}
    )

  assert not np.allclose(apply(0), apply(1))
  np.testing.assert_array_equal(apply(0), apply(0))
  off = dataclasses.replace(CONFIG, dropout_rate=0.0, attention_dropout_rate=0.0)
  np.testing.assert_array_equal(apply(0, off), encode(params, tokens))


@pytest.mark.parametrize(
  ("rates", "draws"),
  [((0.1, 0.1), 1 + 3 * CONFIG.num_layers), ((0.1, 0), 1 + 2 * CONFIG.num_layers), ((0, 0.1), 2)],
)
def test_dropout_is_where_it_was_published(params, tokens, rates, draws):
  """After the embeddings, in both branches of a layer, and on the attention probabilities."""
  config = dataclasses.replace(CONFIG, dropout_rate=rates[0], attention_dropout_rate=rates[1])
  jaxpr = jax.make_jaxpr(
    lambda key: bert.BertEncoder(config).apply(
      {"params": params}, tokens, deterministic=False, rngs={"dropout": key}
    )
  )(jax.random.key(0))
  assert str(jaxpr).count("name=kept") == draws


def test_float64_must_be_enabled():
  with pytest.raises(ValueError, match="JAX_ENABLE_X64=1"):
    dataclasses.replace(CONFIG, dtype="float64")


def test_with_one_segment_embedding_both_segments_are_the_same(tokens, params):
  config = dataclasses.replace(CONFIG, num_segments=1)
  params = {**params, "segment_embedding": params["segment_embedding"][:1]}
  first = dataclasses.replace(tokens, segments=np.zeros_like(tokens.segments))
  assert np.any(tokens.segments)
  np.testing.assert_array_equal(encode(params, tokens, config), encode(params, first, config))


RATE, EPSILON = 0.4, 1e-3
NORM = bert.ResidualNorm(EPSILON, RATE)


def definition(arrays, key):
  inputs, branch, scale, bias = arrays
  if key is not None:
    kept = dropout.kept(dropout.of_use(key, ()), shape=branch.shape, rate=RATE)
    branch = jnp.where(kept, branch / (1 - RATE), 0)
  centred = inputs + branch - (inputs + branch).mean(axis=-1, keepdims=True)
  variance = jnp.square(centred).mean(axis=-1, keepdims=True)
  return centred / jnp.sqrt(variance + EPSILON) * scale[None, None] + bias[None, None]


def ours(arrays, key):
  *both, scale, bias = arrays
  return NORM.apply({"params": {"scale": scale, "bias": bias}}, *both, key)


def derivatives(norm, arrays, key):
  """Returns values, gradients, and the gradients of the gradients' squares."""

  def gradients(arrays):
    return jax.grad(lambda arrays: jnp.sum(jnp.sin(norm(arrays, key))))(arrays)

  def squares(arrays):
    return sum(jnp.sum(jnp.square(gradient)) for gradient in gradients(arrays))

  return norm(arrays, key), gradients(arrays), jax.grad(squares)(arrays)


@pytest.mark.parametrize(
  "key", [None, dropout.words(jax.random.key(1), (2,))], ids=["all", "dropout"]
)
def test_is_the_norm_of_the_sum_in_value_and_two_derivatives(key):
  with jax.enable_x64(True):
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape) for shape in [(2, 3, 5)] * 2 + [(5,)] * 2]
    found, expected = (
      jax.jit(functools.partial(derivatives, norm))(arrays, key) for norm in (ours, definition)
    )
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), found, expected
    )
