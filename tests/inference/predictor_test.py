import os

import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStore, PassageStoreWriter
from realm_jax.data.questions import masked_text_query
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.inference.predictor import Predictor
from realm_jax.inference.reading import read
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever
from realm_jax.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "is", "pound", "euro", "old"])
IS, POUND, EURO, OLD = range(5, 9)
ROWS = (("Money", "pound is old", [POUND, IS, OLD]), ("Coins", "euro is", [EURO, IS]))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  directory = tmp_path_factory.mktemp("store")
  writer = PassageStoreWriter(directory, tokenizer=TOKENIZER, max_passage_length=9)
  for uid, (title, text, ids) in enumerate(ROWS, 1):
    writer.append(title=title, text=text, title_ids=np.zeros(0), body_ids=np.array(ids), uid=uid)
  writer.finish(counts={})
  return PassageStore(os.fspath(directory))


def read_first_word(params, batch):
  """Answers with the first wordpiece of a passage, and with "old" where there is none."""
  scores_BxK = np.where(batch.passage_ids_BxK < 0, 0.0, batch.stale_scores_BxK)
  bodies_BxK = batch.passage.ids[:, :, 2]
  words_BxK = np.where(bodies_BxK == TOKENIZER.sep_id, OLD, bodies_BxK)
  logits_BxKxV = params["sharpness"] * (words_BxK[..., None] == np.arange(TOKENIZER.vocab_size))
  masks = batch.queries.mlm_weights_BxM.shape[1]
  logits_BxKxMxV = np.repeat(logits_BxKxV[:, :, None], masks, axis=2)
  return read(scores_BxK, logits_BxKxMxV, batch.queries.mlm_weights_BxM, valid_BxK=batch.valid_BxK)


@pytest.fixture
def predictor(store):
  config = RetrievalConfig(num_passages=4, passage_length=8, joint_length=16)
  retriever = Retriever(
    encode_query=lambda params, tokens: jnp.ones((len(tokens.ids), 1), jnp.float32),
    searcher=ExactSearcher(np.array([[1.0], [2.0]], np.float32)),
    store=store,
    config=config,
  )
  return Predictor(
    params={"sharpness": 5.0}, read=read_first_word, retriever=retriever, store=store
  )


def query(num_masks=1):
  return masked_text_query(
    "the [MASK] is", num_masks=num_masks, tokenizer=TOKENIZER, query_length=8, max_masks=3
  )


def test_an_answer_says_from_which_passage_it_comes(predictor):
  (answer,) = predictor.answer(query())
  assert answer.ids == (EURO,)
  first, second, null = answer.passages
  assert (first.passage_id, first.title, first.text) == (1, "Coins", "euro is")
  assert (second.passage_id, second.title, second.text) == (0, "Money", "pound is old")
  assert (null.passage_id, null.title, null.text) == (-1, "", "")
  prior = np.exp([2, 1, 0]) / np.exp([2, 1, 0]).sum()
  np.testing.assert_allclose([p.retrieval_probability for p in answer.passages], prior, rtol=1e-5)
  hit, miss = np.exp(5) / (np.exp(5) + 8), 1 / (np.exp(5) + 8)
  likelihood = [hit, miss, miss]
  np.testing.assert_allclose([p.answer_probability for p in answer.passages], likelihood, rtol=1e-5)
  assert answer.probability == pytest.approx(prior @ likelihood, rel=1e-5)


def test_without_retrieval_only_the_null_passage_speaks(predictor):
  (answer,) = predictor.answer(query(), without_retrieval=True)
  assert answer.ids == (OLD,)
  (null,) = answer.passages
  assert null.passage_id == -1
  assert null.retrieval_probability == pytest.approx(1)
  assert answer.probability == pytest.approx(null.answer_probability)


def test_an_answer_has_as_many_wordpieces_as_there_are_masks(predictor):
  assert predictor.answer(query(2))[0].ids == (EURO, EURO)
  empty = query().replace(mlm_weights_BxM=np.zeros((1, 3), np.float32))
  assert predictor.answer(empty)[0].ids == ()


def test_the_best_passages_come_without_the_null_passage(predictor):
  assert predictor.retrieve(query(), k=1).tolist() == [[1]]
  assert predictor.retrieve(query(), k=3).tolist() == [[1, 0, -2]]
