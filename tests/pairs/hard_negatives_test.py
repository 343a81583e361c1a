import types

import numpy as np

from realm_jax.datatypes import SearchResults
from realm_jax.pairs.hard_negatives import HardNegatives
from realm_jax.retrieval.index_refresher import LoadedGeneration


class Store:
  """Passages of one wordpiece, their row plus 100; the uid is the row plus 1."""

  uids = np.arange(1, 7)
  metadata = types.SimpleNamespace(cls_id=2, sep_id=3)

  def __len__(self):
    return 6

  def title_ids(self, rows, *, length):
    shape = np.shape(rows)
    return np.zeros((*shape, 0), np.int32), np.zeros(shape, np.int32)

  def body_ids(self, rows, *, length):
    return 100 + np.asarray(rows)[..., None], np.ones(np.shape(rows), np.int32)


class Ranked:
  def __init__(self, ids):
    self.ids = np.array(ids)

  def search(self, queries_BxE, k):
    ids_BxK = self.ids[:, :k]
    return SearchResults(ids_BxK, np.zeros(ids_BxK.shape, np.float32))


PAIRS = {  # positives 0 and 1, each with two mined negatives; passage 2 is right for the second too
  "query": np.array([[2, 7, 3], [2, 8, 3]]),
  "passage": np.array(
    [[[2, 100, 3, 0], [2, 104, 3, 0], [2, 105, 3, 0]]]
    + [[[2, 101, 3, 0], [2, 104, 3, 0], [2, 105, 3, 0]]]
  ),
  "passage_segments": np.zeros((2, 3, 4), int),
  "passage_uid": np.array([[1, 5, 6], [2, 5, 6]]),
  "also_right": np.array([[1, 0], [2, 3]]),
}


def batch(ids):
  finder = HardNegatives(
    encode_query=lambda params, query: np.zeros((len(query.ids), 4), np.float32),
    searcher=Ranked([[0]]),
    store=Store(),
  )
  finder.use(LoadedGeneration(generation=1, searcher=Ranked(ids), training_step=0, created=0.0))
  made, figures = finder.finish(finder.begin({}, PAIRS))
  again = finder.resume(finder.in_flight(made))
  assert all(np.array_equal(again[name], values) for name, values in made.items())
  return made, figures


def pieces(made):
  return [[[i for i in row if i >= 100] for row in rows] for rows in made["passage"].tolist()]


def test_the_best_passages_that_are_not_right_are_the_negatives():
  made, figures = batch([[0, 3, 1, 2, 4], [2, 5, 1, 3, 4]])
  assert pieces(made) == [[[100], [103], [101]], [[101], [105], [103]]]
  assert made["passage_uid"].tolist() == [[1, 4, 2], [2, 6, 4]]
  assert made["passage_ids"].tolist() == [[3, 1], [5, 3]]
  assert figures["retrieval/positives_found"] == 1.0


def test_where_the_search_finds_too_few_the_mined_negatives_stay():
  made, figures = batch([[3, -1, -1, -1, -1], [1, 2, -1, -1, -1]])
  assert pieces(made) == [[[100], [103], [105]], [[101], [104], [105]]]
  assert made["passage_uid"].tolist() == [[1, 4, 6], [2, 5, 6]]
  assert figures["retrieval/positives_found"] == 0.5
