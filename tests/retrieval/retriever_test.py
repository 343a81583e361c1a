"""Which passages are read with a query, and in which buckets of lengths."""

import jax
import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.retrieval.retriever import (
  RetrievalConfig,
  Retriever,
  choose_passages,
  closed_book,
)

EMBEDDINGS_NxE = np.array([[4, 0, 1], [3, 1, 0], [2, 2, 0], [1, 3, 0]], np.float32)


@jax.jit
def encode_query(params, tokens):
  """Embeds a query by its second wordpiece."""
  return params[tokens.ids[:, 1]]


# Wordpiece 20 asks for [1, 0, 0], which ranks the passages 0, 1, 2, 3; 21 turns that round.
PARAMS = np.zeros((45, 3), np.float32)
PARAMS[20, 0] = PARAMS[21, 1] = 1


def make_retriever(store, *, embeddings=EMBEDDINGS_NxE, num_passages=3, **settings):
  config = RetrievalConfig(num_passages=num_passages, passage_length=8, joint_length=12, **settings)
  searcher = ExactSearcher(embeddings)
  return Retriever(encode_query=encode_query, searcher=searcher, store=store, config=config)


def retrieve(retriever, queries):
  batch, figures = retriever.finish(retriever.begin(PARAMS, queries))
  assert min(figures.values()) >= 0
  return batch


@pytest.fixture
def queries(make_queries):
  # Cut from passage 1, from none, from one of another corpus, and from passage 3.
  return make_queries(([20, 30], 101), ([20, 30], 0), ([20, 30], 999), ([21, 30], 103))


def test_a_query_gets_the_null_passage_and_the_best_that_are_not_its_own(store, queries):
  batch = retrieve(make_retriever(store), queries)
  assert batch.passage_ids_BxK.tolist() == [[-1, 0, 2], [-1, 0, 1], [-1, 0, 1], [-1, 2, 1]]
  assert batch.stale_scores_BxK.tolist() == [[0, 4, 2], [0, 4, 3], [0, 4, 3], [0, 2, 1]]
  assert batch.valid_BxK.all()


def test_its_own_passage_can_be_allowed(store, queries):
  batch = retrieve(make_retriever(store, trivial_passage="allow"), queries)
  assert batch.passage_ids_BxK.tolist() == [[-1, 0, 1], [-1, 0, 1], [-1, 0, 1], [-1, 3, 2]]


def test_its_own_passage_can_come_first_whether_it_was_found_or_not(store, queries):
  retriever = make_retriever(store, trivial_passage="first", num_passages=2)
  batch, figures = retriever.finish(retriever.begin(PARAMS, queries))
  assert batch.passage_ids_BxK.tolist() == [[-1, 1], [-1, 0], [-1, 0], [-1, 3]]
  assert figures["retrieval/own_passage_share"] == 0.5


def test_passages_that_hold_the_masked_sentence_are_dropped_and_counted(make_store, make_queries):
  # The sentence 20 30 stands in passages 1 and 2; 0 has its beginning, and 3 its wordpieces apart.
  bodies = [7, 20, 31], [6, 20, 30], [20, 30, 9], [20, 8, 30]
  store = make_store(*(([5], body) for body in bodies))
  cut_from_another_corpus, without_source = (
    make_queries(([20, 30], 999)),
    make_queries(([20, 30], 0)),
  )

  def retrieved(queries, **settings):
    retriever = make_retriever(store, num_passages=4, **settings)
    batch, figures = retriever.finish(retriever.begin(PARAMS, queries))
    return batch.passage_ids_BxK.tolist(), figures["retrieval/trivial_passages"]

  assert retrieved(cut_from_another_corpus) == ([[-1, 0, 3, -2]], 2)
  assert retrieved(without_source) == ([[-1, 0, 1, 2]], 0)
  assert retrieved(cut_from_another_corpus, trivial_passage="allow") == ([[-1, 0, 1, 2]], 0)
  # Read beside passage 3, which answers it in other words, it has none that holds its sentence.
  answered = make_queries(([20, 30], 103))
  assert retrieved(answered, trivial_passage="first")[0] == [[-1, 3, 0, -2]]


def test_a_corpus_smaller_than_k_leaves_slots_invalid(make_store, queries):
  store = make_store(([5], [6]), ([7], [8]))
  retriever = make_retriever(store, embeddings=EMBEDDINGS_NxE[:2], num_passages=5)
  batch = retrieve(retriever, queries)
  assert batch.passage_ids_BxK[0].tolist() == [-1, 0, -2, -2, -2]
  assert batch.passage_ids_BxK[1].tolist() == [-1, 0, 1, -2, -2]
  np.testing.assert_array_equal(batch.valid_BxK, batch.passage_ids_BxK != -2)
  assert np.isfinite(batch.stale_scores_BxK).all()


def test_the_null_passage_can_be_masked_unless_it_is_the_only_one(make_store, queries):
  store = make_store(([5], [6]), ([7], [8]))
  retriever = make_retriever(store, embeddings=EMBEDDINGS_NxE[:2], null_passage="mask")
  assert retrieve(retriever, queries).valid_BxK.tolist() == [
    [False, True, False],
    [False, True, True],
    [False, True, True],
    [False, True, True],
  ]
  single = make_store(([5], [6]), ([7], [8]))
  retriever = make_retriever(single, embeddings=EMBEDDINGS_NxE[1:2], null_passage="mask")
  own = retrieve(retriever, queries.replace(source_uid_B=np.full(4, 100)))
  assert own.valid_BxK.tolist() == [[True, False, False]] * 4


def test_closed_book_leaves_only_the_null_passage(store, queries):
  open_book = retrieve(make_retriever(store), queries)
  closed = closed_book(open_book)
  assert closed.valid_BxK.tolist() == [[True, False, False]] * 4
  assert open_book.valid_BxK.all()
  assert closed.joint is open_book.joint


@pytest.mark.parametrize(
  ("ids", "trivial", "expected"),
  [
    ([7, 3, 9, 5], [], [-1, 7, 3, 9]),  # the fourth was fetched for nothing
    ([7, 3, 9, 5], [7], [-1, 3, 9, 5]),
    ([7, 3, 9, 5], [9], [-1, 7, 3, 5]),
    ([7, 3, 9, 5], [5], [-1, 7, 3, 9]),
    ([7, 3, 9, 5], [7, 9], [-1, 3, 5, -2]),
    ([7, 3, -2, -2], [], [-1, 7, 3, -2]),
    ([7, 3, -2, -2], [7], [-1, 3, -2, -2]),
    ([7, -2, -2, -2], [7], [-1, -2, -2, -2]),
    ([7, 3], [], [-1, 7, 3, -2]),  # fewer results than slots
    ([0, 3, 9, 5], [], [-1, 0, 3, 9]),
  ],
)
def test_the_null_passage_comes_first_and_the_trivial_one_never(ids, trivial, expected):
  scores = np.where(np.array(ids) < 0, -np.inf, 10.0 - np.arange(len(ids))).astype(np.float32)
  score_of = dict(zip(ids, scores.tolist(), strict=True))
  chosen = choose_passages(
    SearchResults(np.array([ids], np.int32), scores[None]),
    trivial_BxR=np.isin([ids], trivial),
    num_passages=4,
  )
  assert chosen.ids_BxK.tolist() == [expected]
  assert chosen.scores_BxK.tolist() == [[score_of[i] if i >= 0 else 0 for i in expected]]
  assert (chosen.ids_BxK.dtype, chosen.scores_BxK.dtype) == (np.int32, np.float32)
