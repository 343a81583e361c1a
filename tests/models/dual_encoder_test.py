import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices import datatypes, partitioning
from realm_jax.models import attention_kernels, bert, dual_encoder
from tests.configurations import tiny_bert

BERT = tiny_bert(max_length=10)
SHARED = dual_encoder.DualEncoderConfig(bert=BERT, projection_size=4)
SEPARATE = dataclasses.replace(SHARED, towers="separate")


@pytest.fixture(scope="module")
def pairs(make_tokens):
  """Queries `[2, 5]` and passages `[2, 3, 7]`, slot 0 the same for both, as the null passage is."""
  random = np.random.default_rng(0)
  query, passage = (make_tokens(random, *shape, vocab_size=11) for shape in ((2, 5), (2, 3, 7)))
  for leaf in jax.tree.leaves(passage):
    leaf[:, 0] = leaf[0, 0]
    leaf[:, 0, datatypes.NULL_PASSAGE_LENGTH :] = 0
  return query, passage


@functools.partial(jax.jit, static_argnames="module")
def variables_of(module, *inputs):
  return nn.unbox(module.init(jax.random.key(0), *inputs, deterministic=True))


def init(config, pairs):
  module = dual_encoder.DualEncoder(config)
  return module, variables_of(module, *pairs)


@functools.partial(jax.jit, static_argnames=("module", "deterministic", "method"))
def apply(module, variables, *inputs, deterministic=True, method=None):
  return module.apply(
    variables,
    *inputs,
    deterministic=deterministic,
    method=method,
    rngs={"dropout": jax.random.key(0)},
  )


@pytest.fixture
def atol(float_tolerance, encoder_depth):
  """For embeddings and their products, which stay below a few units."""
  return float_tolerance(depth=encoder_depth(BERT) + 4 * BERT.hidden_size, scale=4)


@pytest.mark.parametrize("config", [SHARED, SEPARATE])
def test_score_is_the_inner_product_of_the_embeddings(config, pairs, atol):
  module, variables = init(config, pairs)
  query, passage = pairs
  scores_BxK = apply(module, variables, query, passage)
  assert scores_BxK.shape == (2, 3)
  for k in range(3):
    of_slot = datatypes.Pairs(query=query, passage=passage[:, k], uid_B=np.zeros(2))
    query_BxE, passage_BxE = apply(module, variables, of_slot, method="encode_pairs")
    expected_B = np.sum(query_BxE * passage_BxE, axis=-1)
    np.testing.assert_allclose(scores_BxK[:, k], expected_B, atol=atol)


def test_temperature_divides_the_scores_and_nothing_else(pairs, atol):
  module, variables = init(SHARED, pairs)
  warm = dual_encoder.DualEncoder(dataclasses.replace(SHARED, temperature=4.0))
  query, passage = pairs
  scores_BxK, warm_BxK = (apply(each, variables, query, passage) for each in (module, warm))
  np.testing.assert_allclose(warm_BxK, scores_BxK / 4.0, atol=atol)
  np.testing.assert_array_equal(np.argsort(warm_BxK), np.argsort(scores_BxK))
  for method in ("encode_query", "encode_passage"):
    np.testing.assert_array_equal(
      apply(warm, variables, query, method=method), apply(module, variables, query, method=method)
    )


def test_ignored_wordpieces_are_embedded_like_padding(pairs, atol):
  query, passage = pairs
  plain = dataclasses.replace(SHARED, pooling="mean")  # which a wordpiece moves most
  config = dataclasses.replace(plain, ignored_ids=(7,))
  module, variables = init(plain, pairs)
  query = dataclasses.replace(query, ids=query.ids.copy())
  query.ids[0, 2] = query.ids[1, 1] = 7
  hidden = dataclasses.replace(query, mask=query.mask & (query.ids != 7))
  ignoring = dual_encoder.DualEncoder(config)
  found = apply(ignoring, variables, query, method="encode_query")
  expected = apply(module, variables, hidden, method="encode_query")
  np.testing.assert_allclose(found, expected, atol=atol)
  seen = apply(module, variables, query, method="encode_query")
  assert (np.abs(found - seen).max(axis=1) > 10 * atol).all()


def test_wordpieces_are_ignored_on_gpus_too(pairs, monkeypatch):
  """CuDNN's attention knows lengths, but nothing of what is ignored between words."""
  by_lengths = functools.partial(attention_kernels.by_lengths, implementation="xla")
  monkeypatch.setattr(attention_kernels, "by_lengths", by_lengths)
  monkeypatch.setattr(partitioning, "platform", lambda: "gpu")
  auto = tiny_bert(max_length=10, num_heads=1, initializer_range=1.0, dtype="bfloat16")
  plain = dataclasses.replace(auto, attention="plain")
  query, _ = pairs
  query = dataclasses.replace(query, ids=query.ids.copy())
  query.ids[:, 1] = 7
  found = []
  for of_tower in (auto, plain):
    config = dataclasses.replace(SHARED, bert=of_tower, pooling="mean", ignored_ids=(7,))
    module, variables = init(config, pairs)
    found.append(apply(module, variables, query, method="encode_query"))
  np.testing.assert_array_equal(*found)
  fused = dataclasses.replace(config, bert=dataclasses.replace(auto, attention="fused"))
  with pytest.raises(ValueError, match="ignored_ids; use 'auto' or 'plain'"):
    apply(dual_encoder.DualEncoder(fused), variables, query, method="encode_query")


@pytest.mark.parametrize("side", ["query", "passage"])
def test_a_prompt_is_embedded_like_words_after_cls(side, pairs, atol):
  config = dataclasses.replace(SHARED, pooling="mean")
  module, variables = init(config, pairs)
  query, _ = pairs
  empty = jax.tree.map(np.zeros_like, query[:1])
  texts = jax.tree.map(lambda *rows: np.concatenate(rows), query, empty)
  written = jax.tree.map(lambda values: np.insert(values, [1, 1], 0, axis=1), texts)
  written.ids[:-1, 1:3] = 8, 9
  written.mask[:-1, 1:3] = True
  prompting = dual_encoder.DualEncoder(dataclasses.replace(config, **{f"{side}_prompt": (8, 9)}))
  for method in ("encode_query", "encode_passage"):
    expected = written if method == f"encode_{side}" else texts
    np.testing.assert_allclose(
      apply(prompting, variables, texts, method=method),
      apply(module, variables, expected, method=method),
      atol=atol,
    )


@pytest.mark.parametrize("pooling", ["pooler", "mean"])
def test_embeddings_are_float32_normalised_and_blind_to_padding(pooling, pairs, atol):
  bf16 = dataclasses.replace(BERT, dtype="bfloat16")
  for config in (SHARED, dataclasses.replace(SHARED, bert=bf16)):
    config = dataclasses.replace(config, pooling=pooling)
    module, variables = init(config, pairs)
    query, _ = pairs
    longer = jax.tree.map(lambda leaf: np.pad(leaf, ((0, 0), (0, 2))), query)
    longer = longer.replace(ids=np.where(longer.mask, longer.ids, 3))
    short_FxE, long_FxE = (
      apply(module, variables, tokens, method="encode_query") for tokens in (query, longer)
    )
    assert short_FxE.dtype == jnp.float32
    np.testing.assert_allclose(short_FxE, long_FxE, atol=atol if config.bert == BERT else 0.05)
    np.testing.assert_allclose(np.mean(short_FxE, axis=-1), 0, atol=atol)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_without_a_projection_the_embedding_is_the_pooled_vector(pooling, pairs, atol):
  query, _ = pairs
  plain, unit = (
    dual_encoder.Tower(
      dual_encoder.DualEncoderConfig(bert=BERT, projection_size=8, pooling=pooling, output=output)
    )
    for output in ("pooled", "unit_length")
  )
  params = variables_of(plain, query)["params"]
  assert set(params) == {"bert"}
  hidden_FxLxD = np.asarray(apply(bert.BertEncoder(BERT), {"params": params["bert"]}, query))
  if pooling == "cls":
    expected_FxE = hidden_FxLxD[:, 0]
  else:
    rows = zip(hidden_FxLxD, query.mask, strict=True)
    expected_FxE = np.stack([hidden[mask].mean(axis=0) for hidden, mask in rows])
  pooled_FxE = apply(plain, {"params": params}, query)
  np.testing.assert_allclose(pooled_FxE, expected_FxE, atol=atol)
  unit_FxE = apply(unit, {"params": params}, query)
  lengths_Fx1 = np.linalg.norm(expected_FxE, axis=1, keepdims=True)
  np.testing.assert_allclose(unit_FxE, expected_FxE / lengths_Fx1, atol=atol)
