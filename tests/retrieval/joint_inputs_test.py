import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.retrieval.joint_inputs import gather, joint_tokens, passage_tokens

# The store of conftest.py: ([5], [6, 7]), ([], [8]), ([9, 10], [11 ... 15]), ([16], [17, 18, 19]).


@pytest.mark.parametrize(
  ("row", "length", "ids", "segments"),
  [
    (0, 8, [2, 5, 3, 6, 7, 3, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]),
    (0, 6, [2, 5, 3, 6, 7, 3], [0, 0, 0, 1, 1, 1]),
    (0, 5, [2, 5, 3, 6, 3], [0, 0, 0, 1, 1]),
    (1, 6, [2, 3, 8, 3, 0, 0], [0, 0, 1, 1, 0, 0]),
    (2, 8, [2, 9, 10, 3, 11, 12, 13, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
    (2, 5, [2, 9, 3, 11, 3], [0, 0, 0, 1, 1]),  # a quarter is the body's
    (2, 4, [2, 3, 11, 3], [0, 0, 1, 1]),
    (-1, 6, [2, 3, 3, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
    (-2, 6, [2, 3, 3, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
  ],
)
def test_a_passage_as_the_dual_encoder_sees_it(store, row, length, ids, segments):
  tokens = passage_tokens(store, np.array([row]), length=length)
  assert tokens.ids.tolist() == [ids]
  assert tokens.segments.tolist() == [segments]
  assert tokens.mask.tolist() == [[i != 0 for i in ids]]


@pytest.mark.parametrize(
  ("query", "row", "length", "ids"),
  [
    ([20, 21], 0, 10, [2, 20, 4, 3, 6, 7, 3, 0, 0, 0]),  # without the title
    ([20, 21], 2, 10, [2, 20, 4, 3, 11, 12, 13, 14, 15, 3]),
    ([20, 21], 2, 8, [2, 20, 4, 3, 11, 12, 13, 3]),
    ([20, 21, 22, 23], 2, 8, [2, 20, 21, 22, 4, 3, 11, 3]),
    ([20, 21, 22, 23], -1, 8, [2, 20, 21, 22, 4, 3, 3, 0]),
    ([20], -2, 8, [2, 4, 3, 3, 0, 0, 0, 0]),
  ],
)
def test_query_and_passage_as_the_reader_sees_them(store, make_queries, query, row, length, ids):
  queries = make_queries((query, 0))
  tokens = joint_tokens(store, queries.query, np.array([[row]]), length=length)
  assert tokens.ids.tolist() == [[ids]]
  query_length = len(query) + 2
  segments = [int(place >= query_length and i != 0) for place, i in enumerate(ids)]
  assert tokens.segments.tolist() == [[segments]]
  assert tokens.mask.tolist() == [[[i != 0 for i in ids]]]
  # Masks are where they are in the query alone.
  position = queries.mlm_positions_BxM[0, 0]
  assert tokens.ids[0, 0, position] == 4


def test_every_query_is_read_with_each_of_its_passages(store, make_queries):
  queries = make_queries(([20, 21], 101), ([30], 0))
  passages = SearchResults(
    np.array([[-1, 0, 2], [-1, 1, -2]]), np.array([[0, 5, 4], [0, 3, 0]], np.float32)
  )
  batch = gather(queries, passages, store=store, passage_length=8, joint_length=10)
  assert batch.passage.shape == (2, 3, 8)
  assert batch.joint.shape == (2, 3, 10)
  for b in range(2):
    for k in range(3):
      row = passages.ids_BxK[b, k]
      alone = passage_tokens(store, np.array([row]), length=8)
      np.testing.assert_array_equal(batch.passage.ids[b, k], alone.ids[0])
      one = make_queries([([20, 21], 101), ([30], 0)][b])
      together = joint_tokens(store, one.query, np.array([[row]]), length=10)
      np.testing.assert_array_equal(batch.joint.ids[b, k], together.ids[0, 0])
      np.testing.assert_array_equal(batch.joint.segments[b, k], together.segments[0, 0])
  assert batch.valid_BxK.tolist() == [[True, True, True], [True, True, False]]
  assert batch.passage_ids_BxK.dtype == np.int32
  np.testing.assert_array_equal(batch.stale_scores_BxK, passages.scores_BxK)
  assert batch.queries is queries
