import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.answering import mask_decoding
from realm_jax.answering.answerer import EditableCorpus
from realm_jax.answering.mask_filler import MaskFiller, MaskModel
from realm_jax.data.question_batches import masked_text_query
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.index.words.bm25 import Bm25Retriever
from realm_jax.index.words.postings import Postings
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "is", "pound", "euro", "old"])
IS, POUND, EURO, OLD = range(5, 9)
PASSAGES = ({"title": "Money", "text": "pound is old"}, {"title": "Coins", "text": "euro is"})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  directory = tmp_path_factory.mktemp("store")
  return write_store(directory, PASSAGES, tokenizer=TOKENIZER, max_passage_length=9)


read = jax.jit(mask_decoding.read)


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
def filler(store):
  return make_filler(store)


def make_filler(store, *, hybrid=None):
  model = MaskModel(
    params={"sharpness": 5.0},
    encode_query=lambda params, tokens: jnp.ones((len(tokens.ids), 1), jnp.float32),
    read=read_first_word,
    query_length=8,
    retrieval=RetrievalConfig(num_passages=4, passage_length=8, joint_length=16),
    max_masks=3,
  )
  searcher = ExactSearcher(np.array([[1.0], [2.0]], np.float32))
  loaded = LoadedGeneration(generation=0, searcher=searcher, training_step=0, created=0.0)
  corpus = EditableCorpus(
    store=store, loaded=loaded, tokenizer=TOKENIZER, passage_length=8, hybrid=hybrid
  )
  return MaskFiller(model, corpus)


def query(num_masks=1):
  return masked_text_query(
    "the [MASK] is", num_masks=num_masks, tokenizer=TOKENIZER, query_length=8, max_masks=3
  )


def test_an_answer_says_from_which_passage_it_comes(filler):
  (answer,) = filler.fill(query())
  assert answer.ids == (EURO,)
  (explanation,) = filler.explain(["the [MASK] is"])
  assert explanation.likeliest == "euro"
  first, second, null = explanation.passages
  assert (first.passage_id, first.title, first.text) == (1, "Coins", "euro is")
  assert (second.passage_id, second.title, second.text) == (0, "Money", "pound is old")
  assert (null.passage_id, null.title, null.text) == (-1, "", "")
  prior = np.exp([2, 1, 0]) / np.exp([2, 1, 0]).sum()
  found = [p.retrieval_probability for p in explanation.passages]
  np.testing.assert_allclose(found, prior, rtol=1e-5)
  hit, miss = np.exp(5) / (np.exp(5) + 8), 1 / (np.exp(5) + 8)
  likelihood = [hit, miss, miss]
  found = [p.answer_probability for p in explanation.passages]
  np.testing.assert_allclose(found, likelihood, rtol=1e-5)
  assert answer.probability == pytest.approx(prior @ likelihood, rel=1e-5)
  assert answer.probability == pytest.approx(explanation.answers[0].probability, rel=1e-5)


def test_without_retrieval_only_the_null_passage_speaks(filler):
  (answer,) = filler.fill(query(), without_retrieval=True)
  assert answer.ids == (OLD,)
  assert answer.probability == pytest.approx(np.exp(5) / (np.exp(5) + 8), rel=1e-5)


def test_what_gives_the_answer_away_is_not_read(filler):
  (answer,) = filler.fill(query(), trivial=lambda ids_BxR: ids_BxR == 1, num_extra=1)
  assert answer.ids == (POUND,)
  (answer,) = filler.fill(query(), trivial=lambda ids_BxR: ids_BxR >= 0)
  assert answer == filler.fill(query(), without_retrieval=True)[0]


def test_a_hybrid_retriever_searches_for_the_words_around_the_mask(store):
  texts = [passage["text"] for passage in PASSAGES]
  hybrid = Hybrid(
    bm25=Bm25Retriever([Postings.build(texts)]),
    weight=0.25,
    embeddings_IxE=np.array([[1.0], [2.0]], np.float32),
  )
  filler = make_filler(store, hybrid=hybrid)
  for text, best, answer in (("the [MASK] is old", 0, POUND), ("a euro [MASK]", 1, EURO)):
    assert filler.retrieve(query(), k=1, texts=[text]).tolist() == [[best]]
    assert filler.fill(query(), texts=[text])[0].ids == (answer,)
  (explanation,) = filler.explain(["the [MASK] is old"])
  assert explanation.passages[0].passage_id == 0
