"""Passages that the posterior proposes: which are read, what they change, and when they are not."""

import dataclasses

import jax
import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.retrieval.posterior import Bm25Posterior, Posterior
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever, with_proposed

# The query's last wordpiece, a [MASK] (4), ranks the passages 0, 1, 2, 3; wordpiece 30 the reverse.
EMBEDDINGS_NxE = np.array([[4, 0], [3, 1], [2, 2], [1, 3]], np.float32)
PARAMS = np.zeros((45, 2), np.float32)
PARAMS[4, 0] = PARAMS[30, 1] = 1


@pytest.fixture(scope="module")
def answers(make_store):
  # Wordpiece 30 answers; 20 30 is the sentence, which passage 3 holds.
  return make_store(([5], [6, 7]), ([], [8]), ([9], [30, 12]), ([16], [20, 30]))


def make_retriever(store, *, num_passages=3, embeddings=EMBEDDINGS_NxE, **settings):
  config = RetrievalConfig(num_passages=num_passages, passage_length=8, joint_length=12, **settings)
  return Retriever(
    encode_query=jax.jit(lambda params, tokens: params[tokens.ids[:, 2]]),
    searcher=ExactSearcher(embeddings),
    store=store,
    config=config,
  )


def retrieve(retriever, queries):
  return retriever.finish(retriever.begin(PARAMS, queries))


@pytest.mark.parametrize(
  ("uid", "trivial_passage", "expected", "gained"),
  [
    (103, "drop", [-1, 0, 2], 1),  # passage 3 holds the sentence, so the next one is proposed
    (999, "drop", [-1, 0, 2], 1),
    (103, "allow", [-1, 0, 3], 0),  # the sentence itself is no answer
    (0, "drop", [-1, 0, 3], 1),  # nothing is trivial for a query without a source
  ],
)
def test_the_unmasked_sentence_finds_what_the_masked_query_does_not(
  answers, make_queries, uid, trivial_passage, expected, gained
):
  queries = make_queries(([20, 30], uid), ([20, 30], uid))
  settings = {"trivial_passage": trivial_passage, "posterior": Bm25Posterior(num_passages=1)}
  batch, figures = retrieve(make_retriever(answers, **settings), queries)
  assert batch.passage_ids_BxK.tolist() == [expected] * 2
  assert batch.stale_scores_BxK.tolist() == [[0, 4, -np.inf]] * 2
  assert figures["retrieval/answer_gained_share"] == gained
  without, _ = retrieve(make_retriever(answers, trivial_passage=trivial_passage), queries)
  assert without.passage_ids_BxK.tolist() == [[-1, 0, 1]] * 2


@pytest.mark.parametrize(
  ("proposed", "expected"),
  [
    ([8, 9], [-1, 5, 6, 8, 9]),
    ([6, 9], [-1, 5, 6, 9, 7]),  # each passage once; what else was found fills the slot
    ([7, 9], [-1, 5, 6, 7, 9]),
    ([7, 3], [-1, 5, 6, 7, 3]),
    ([6, 5], [-1, 5, 6, 7, 4]),
    ([-2, -2], [-1, 5, 6, 7, 4]),
    ([8, -2], [-1, 5, 6, 8, 7]),
  ],
)
def test_proposed_passages_follow_the_best_found_without_duplicates(proposed, expected):
  scores = {5: 9, 6: 8, 7: 7, 4: 6, -1: 0}
  found = SearchResults(
    np.array([[-1, 5, 6, 7, 4]], np.int32), np.array([[0, 9, 8, 7, 6]], np.float32)
  )
  ids = np.array([[-1, *proposed]], np.int32)
  chosen = with_proposed(found, SearchResults(ids, np.ones((1, 3), np.float32)))
  assert chosen.ids_BxK.tolist() == [expected]
  assert chosen.scores_BxK.tolist() == [[scores.get(i, -np.inf) for i in expected]]


def test_all_passages_can_be_proposed_and_no_more(answers, make_queries):
  retriever = make_retriever(
    answers, posterior=Bm25Posterior(num_passages=2), trivial_passage="allow"
  )
  batch, _ = retrieve(retriever, make_queries(([20, 30], 103)))
  assert batch.passage_ids_BxK.tolist() == [[-1, 3, 2]]
  for count, remedy in {0: "; give at least 1", 3: " with num_passages=3; give 1 to 2"}.items():
    with pytest.raises(ValueError, match=f"num_passages={count}{remedy}"):
      make_retriever(answers, posterior=Bm25Posterior(num_passages=count))


@pytest.mark.parametrize(("count", "scores"), [(1, [0, 4, 4]), (2, [0, 4, -np.inf])])
def test_an_own_passage_is_not_proposed_and_has_the_best_score_found(
  answers, make_queries, count, scores
):
  retriever = make_retriever(
    answers, posterior=Bm25Posterior(num_passages=count), trivial_passage="first"
  )
  batch, _ = retrieve(retriever, make_queries(([20, 30], 103)))
  assert batch.passage_ids_BxK[:, :2].tolist() == [[-1, 3]]
  assert batch.stale_scores_BxK.tolist() == [scores]


def test_a_batch_in_flight_is_gathered_with_what_was_proposed(answers, make_queries):
  retriever = make_retriever(answers, posterior=Bm25Posterior(num_passages=1))
  batch, _ = retrieve(retriever, make_queries(([20, 30], 103)))
  saved = jax.tree.map(np.copy, retriever.in_flight(batch))
  resumed = make_retriever(answers, posterior=Bm25Posterior(num_passages=1)).resume(saved)
  jax.tree.map(np.testing.assert_array_equal, resumed, batch)


def test_masks_that_are_not_predicted_and_padding_are_no_words(answers, make_queries):
  queries = make_queries(([20, 30], 0))
  unmasked = queries.unmasked.ids.tolist()
  assert unmasked == [[2, 20, 30, 3, 0, 0]]
  hidden = queries.replace(mlm_weights_BxM=np.zeros((1, 2), np.float32))
  assert hidden.unmasked.ids.tolist() == queries.query.ids.tolist()
  found = Bm25Posterior(num_passages=1).open(answers)(hidden.unmasked, 4)
  assert found.ids_BxK.tolist() == [[3, -2, -2, -2]]  # by wordpiece 20 alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Last(Posterior):
  """An own posterior: proposes the last passages, whatever the sentence is."""

  num_passages: int

  def open(self, store):
    last = np.arange(len(store))[::-1].astype(np.int32)

    def search(sentences, k):
      ids_BxK = np.tile(last[:k], (len(sentences.ids), 1))
      return SearchResults(ids_BxK, np.ones(ids_BxK.shape, np.float32))

    return search


def test_any_searcher_of_sentences_can_propose(answers, make_queries):
  retriever = make_retriever(answers, posterior=Last(num_passages=1))
  batch, _ = retrieve(retriever, make_queries(([20, 30], 0)))
  assert batch.passage_ids_BxK.tolist() == [[-1, 0, 3]]
