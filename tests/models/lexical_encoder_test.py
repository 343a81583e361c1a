"""The lexical encoder scores like BM25, approximately by its vectors and exactly by its texts."""

import collections
import dataclasses
import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices.datatypes import Tokens
from realm_jax.models.dropout_keys import dropout_key
from realm_jax.models.lexical_encoder import LexicalEncoderConfig
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.objective import LOSS
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces
from realm_jax.training import optimizer

WORDS = "wing flutter flutters speed sound air aero ##dynamic ##s of the what x ,".split()
VOCABULARY = WordPieces((*SPECIAL_TOKENS, *WORDS))
ID = {word: i for i, word in enumerate(VOCABULARY.vocabulary)}
CONFIG = LexicalEncoderConfig(vocab_size=24, projection_size=4096)
PASSAGES = [
  ("wing", "the flutter of the wing , wing flutters"),
  ("air", "speed of sound x"),
  ("air", "aero ##dynamic ##s of air"),
  ("sound", "sound sound sound sound speed"),
  ("aero", "dynamic".replace("dynamic", "speed")),
]
# Words as terms: inflections together, no stop words, pieces of words apart.
TERMS = [
  "wing flutter wing wing flutter".split(),
  "air speed sound x".split(),
  "air aero ##dynamic ##s air".split(),
  "sound sound sound sound sound speed".split(),
  "aero speed".split(),
]


class Store:
  """The columns of a passage store that are counted."""

  metadata = types.SimpleNamespace(languages=("en",), max_passage_length=16)

  def __len__(self):
    return len(PASSAGES)

  def _column(self, rows, length, column):
    ids = np.zeros((len(rows), length), np.int32)
    for row, passage in zip(ids, rows, strict=True):
      found = [ID[word] for word in PASSAGES[passage][column].split()]
      row[: len(found)] = found
    return ids, (ids > 0).sum(axis=1)

  def title_ids(self, rows, *, length):
    return self._column(rows, length, 0)

  def body_ids(self, rows, *, length):
    return self._column(rows, length, 1)


def tokens(*texts, length=16):
  ids = np.zeros((len(texts), length), np.int32)
  for row, text in zip(ids, texts, strict=True):
    words = [ID[word] for word in f"[CLS] {text} [SEP]".split()]
    row[: len(words)] = words
  return Tokens(ids=ids, mask=ids > 0, segments=np.zeros_like(ids))


QUERIES = ["what flutters wing", "aero ##dynamic speed", "sound air [MASK] of", "x , the"]
QUERY_TERMS = [["flutter", "wing"], ["aero", "##dynamic", "speed"], ["sound", "air"], ["x"]]
PASSAGE_TOKENS = tokens(*(f"{title} [SEP] {text}" for title, text in PASSAGES))


def bm25(query, terms, k1, b):
  """Robertson and Zaragoza's formula, in Lucene's form."""
  mean = sum(map(len, TERMS)) / len(TERMS)
  counts, score = collections.Counter(terms), 0.0
  for term in query:
    frequency = sum(term in passage for passage in TERMS)
    idf = math.log(1 + (len(TERMS) - frequency + 0.5) / (frequency + 0.5))
    length = k1 * (1 - b + b * len(terms) / mean)
    score += idf * counts[term] / (counts[term] + length)
  return score


@pytest.fixture(scope="module")
def params():
  factors = {"embedding": np.zeros((CONFIG.vocab_size, 1), np.float32)}
  return {**CONFIG.from_corpus(Store(), VOCABULARY), "log_factors": factors}


def expected(config=CONFIG):
  return np.array(
    [[bm25(query, terms, config.k1, config.b) for terms in TERMS] for query in QUERY_TERMS]
  )


def rescored(params, config=CONFIG, query=tokens(*QUERIES), passages=PASSAGE_TOKENS):
  """The exact score of each query with each passage, `[B, F]`."""
  shape = (query.shape[0], passages.shape[0])
  every = jax.tree.map(lambda leaf: np.repeat(leaf[None], shape[0], axis=0), passages)
  scores = np.zeros(shape, np.float32)
  return config.make().apply({"params": params}, query, every, scores, method="rescored")


@pytest.mark.parametrize("rows", [slice(None), slice(1, 2)])
def test_scores_of_all_pairs_are_the_exact_scores_of_each(params, rows):
  """Of many queries, which have all terms, and of one, whose terms alone are compared."""
  module, queries = CONFIG.make(), tokens(*QUERIES[rows], length=8)
  compared = module.apply({"params": params}, queries, PASSAGE_TOKENS, method="encode_pairs")
  found = module.pair_scores(*compared)
  np.testing.assert_allclose(found, rescored(params)[rows], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_pairs_teach_the_weights_by_exact_scores(params, parts):
  """Vectors of 32 numbers, of which the noise is larger than the scores, have no part in it."""
  config = dataclasses.replace(CONFIG, projection_size=32)
  queries, passages = tokens("flutter air", "aero speed", "sound", "wing x"), PASSAGE_TOKENS[:4]
  loss = Contrastive(scale=2.0).build(config.make())
  batch = {"query": queries.ids, "passage": passages.ids, "passage_segments": passages.segments}

  def expected_loss(params):
    log_probs_BxF = jax.nn.log_softmax(2.0 * rescored(params, config, queries, passages))
    return -jnp.mean(jnp.diagonal(log_probs_BxF))

  expected, expected_gradients = jax.jit(jax.value_and_grad(expected_loss))(params)
  learn = jax.jit(functools.partial(loss.gradients, parts=parts))
  gradients, metrics = learn(params, batch, dropout_key(0, 0))
  np.testing.assert_allclose(metrics[LOSS].value, expected, rtol=1e-5)
  found = gradients["log_factors"]["embedding"]
  np.testing.assert_allclose(found, expected_gradients["log_factors"]["embedding"], atol=1e-6)
  assert (np.abs(found[np.array([ID["flutter"], ID["speed"], ID["sound"]])]) > 0.01).all()


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.0), (0.1, 0.5), (2.0, 1.0)])
def test_exact_scores_are_those_of_bm25(params, k1, b):
  config = dataclasses.replace(CONFIG, k1=k1, b=b)
  np.testing.assert_allclose(rescored(params, config), expected(config), rtol=1e-5, atol=1e-6)


def test_vectors_have_these_scores_but_for_noise(params):
  module = CONFIG.make()
  query = module.apply({"params": params}, tokens(*QUERIES), method="encode_query")
  passage = module.apply({"params": params}, PASSAGE_TOKENS, method="encode_passage")
  # Of random signs; the products of vectors of length r and s have a deviation of about r s / √E.
  noise = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(passage, axis=1) / 64
  assert (np.abs(query @ passage.T - expected()) <= 4 * noise + 1e-6).all()
  assert np.abs(query @ passage.T - expected()).max() > 1e-4


def test_weight_decay_keeps_factors_near_one(params):
  config = optimizer.OptimizerConfig(learning_rate=0.1, warmup_steps=0, weight_decay=0.5)
  optimize = optimizer.make_optimizer(config, num_steps=10)
  tree = {**params, "log_factors": {"embedding": np.ones((CONFIG.vocab_size, 1), np.float32)}}
  none = jax.tree.map(np.zeros_like, tree)
  updates, _ = optimize.update(none, optimize.init(tree), tree)
  assert (updates.pop("log_factors")["embedding"] < 0).all()
  assert not any(leaf.any() for leaf in jax.tree.leaves(updates))


def test_what_is_learned_is_the_querys_alone(params):
  assert CONFIG.parts("query") == {"log_factors", "query_log_weights", "terms"}
  assert CONFIG.parts("passage") == {"passage_log_weights", "terms", "mean_length"}
  separated, parts = CONFIG.separated()
  assert separated == CONFIG
  assert parts.keys() == params.keys()


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"projection_size": 100}, "projection_size=100"),
    ({"k1": -1.0}, "k1=-1.0"),
    ({"b": 1.5}, "b=1.5"),
  ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    LexicalEncoderConfig(**settings)
