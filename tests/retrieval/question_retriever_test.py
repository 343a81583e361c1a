import jax
import numpy as np
import pytest

from realm_jax.devices.datatypes import Questions, SearchResults, Tokens
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.question_retriever import BeamConfig, QuestionRetriever

CLS, SEP = 2, 3
# Rows of `store`: bodies [6 7], [8], [11 12 13 14 15], [17 18 19].
EMBEDDINGS_NxE = np.array([[4, 0], [3, 1], [2, 2], [1, 3]], np.float32)
SPANS = {(0, 2): [[0, 0], [1, 3], [4, 4]], (0, 0): [[1, 1]], (1, 3): [[0, 2]]}


class TableMatcher:
  """Answers by a table of `(question, row) -> spans`."""

  def contains(self, question_index_B, ids_BxR):
    pairs = zip(question_index_B, ids_BxR, strict=True)
    return np.array([[(int(q), int(row)) in SPANS for row in ids_R] for q, ids_R in pairs])

  def spans(self, question_index, row):
    return np.array(SPANS.get((question_index, row), np.zeros((0, 2))), np.int32).reshape(-1, 2)


class ShuffledSearcher(ExactSearcher):
  """Finds the right passages in the wrong order, like approximate scores."""

  def search(self, queries_BxE, k):
    ids_BxK, scores_BxK = super().search(queries_BxE, k)
    return SearchResults(ids_BxK[:, ::-1].copy(), scores_BxK[:, ::-1].copy())


def questions(*rows, length=5, weights=None):
  ids_BxL = np.zeros((len(rows), length), np.int32)
  for row, ids in enumerate(rows):
    ids_BxL[row, : len(ids) + 2] = [CLS, *ids, SEP]
  return Questions(
    query=Tokens(ids=ids_BxL, mask=ids_BxL != 0, segments=np.zeros_like(ids_BxL)),
    index_B=np.arange(len(rows), dtype=np.int32),
    weights_B=np.ones(len(rows), np.float32) if weights is None else np.float32(weights),
  )


@pytest.fixture
def make_retriever(store):
  def make(searcher=ExactSearcher, *, widths=3, fresh=None, **sizes):
    sizes = {"beam_size": 4, "num_read": 2, "joint_length": 9, **sizes}
    return QuestionRetriever(
      # The first question looks to the left, the second to the right.
      encode_query=lambda params, tokens: np.eye(2, dtype=np.float32)[: len(tokens.ids)],
      loaded=LoadedGeneration(
        generation=0,
        searcher=searcher(EMBEDDINGS_NxE),
        training_step=0,
        created=0.0,
        embeddings_NxE=EMBEDDINGS_NxE,
      ),
      store=store,
      config=BeamConfig(**sizes),
      max_span_width=widths,
      matcher=TableMatcher(),
      fresh_passage_length=fresh,
    )

  return make


def retrieve(retriever, batch=None):
  batch = questions([20], [21, 22]) if batch is None else batch
  return retriever.finish(retriever.begin(None, batch))[0]


def test_the_beam_comes_best_first_with_its_embeddings_and_labels(make_retriever):
  batch = retrieve(make_retriever())
  assert batch.passage_ids_BxR.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]
  np.testing.assert_array_equal(batch.embeddings_BxRxE, EMBEDDINGS_NxE[batch.passage_ids_BxR])
  assert batch.has_answer_BxR.tolist() == [[True, False, True, False], [True, False, False, False]]


def test_only_the_best_are_read_with_their_answers_marked(make_retriever):
  batch = retrieve(make_retriever())
  assert batch.joint.ids[0, 0].tolist() == [CLS, 20, SEP, 6, 7, SEP, 0, 0, 0]
  assert batch.joint.ids[1, 0].tolist() == [CLS, 21, 22, SEP, 17, 18, 19, SEP, 0]
  marked = np.argwhere(batch.gold_BxKxTxW).tolist()
  # Question 0 finds wordpiece 1 of passage 0; question 1 the whole body of passage 3.
  assert marked == [[0, 0, 4, 0], [1, 0, 4, 2]]


def test_answers_too_wide_or_cut_off_are_not_marked(make_retriever):
  by_row_2 = questions([20], [21])
  retriever = make_retriever(num_read=4, joint_length=8)
  batch = retrieve(retriever, by_row_2)
  # [CLS] 20 [SEP] 11 12 13 14 [SEP]: the fifth wordpiece of row 2 is cut off.
  assert np.argwhere(batch.gold_BxKxTxW[0, 2]).tolist() == [[3, 0], [4, 2]]
  narrow = retrieve(make_retriever(num_read=4, joint_length=8, widths=2), by_row_2)
  assert np.argwhere(narrow.gold_BxKxTxW[0, 2]).tolist() == [[3, 0]]


@pytest.mark.parametrize(("order", "found"), [("exact", [0, 1, 2, 3]), ("searcher", [3, 2, 1, 0])])
def test_exact_scores_order_the_beam_unless_the_searcher_is_asked_to(make_retriever, order, found):
  batch = retrieve(make_retriever(ShuffledSearcher, order=order))
  assert batch.passage_ids_BxR[0].tolist() == found


def test_the_batch_in_flight_is_made_anew(make_retriever):
  retriever = make_retriever(fresh=6)
  batch = retrieve(retriever)
  assert batch.passage.shape == (2, 2, 6)
  again = make_retriever(fresh=6).resume(jax.tree.map(np.copy, retriever.in_flight(batch)))
  jax.tree.map(np.testing.assert_array_equal, again, batch)
