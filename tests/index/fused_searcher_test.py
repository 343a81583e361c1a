import numpy as np
import pytest

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, SearchResults
from realm_jax.index.fused_searcher import FusedSearcher, Fusion, fuse

MISSING = MISSING_PASSAGE_ID
DENSE = SearchResults(
  np.array([[3, 1, 2], [5, 6, MISSING]], np.int32),
  np.array([[9.0, 5.0, 1.0], [-2.0, -4.0, -np.inf]], np.float32),
)
SPARSE = SearchResults(
  np.array([[1, 7, 3], [MISSING] * 3], np.int32),
  np.array([[30.0, 20.0, 10.0], [-np.inf] * 3], np.float32),
)


def test_reciprocal_ranks_are_added():
  found = fuse(DENSE, SPARSE, 5, fusion=Fusion())
  assert found.ids_BxK.tolist() == [[1, 3, 7, 2, MISSING], [5, 6, MISSING, MISSING, MISSING]]
  expected = [0.5 / 62 + 0.5 / 61, 0.5 / 61 + 0.5 / 63, 0.5 / 62, 0.5 / 63]
  np.testing.assert_allclose(found.scores_BxK[0, :4], expected, rtol=1e-6)


def test_equal_sums_of_ranks_are_broken_by_lower_id_whichever_ranking_they_are_from():
  rows = [np.random.default_rng(seed).permutation(50).astype(np.int32)[None] for seed in range(2)]
  one, other = (SearchResults(ids, -np.arange(50.0, dtype=np.float32)[None]) for ids in rows)
  found = fuse(one, other, 50, fusion=Fusion())
  pairs = list(zip((-found.scores_BxK[0]).tolist(), found.ids_BxK[0].tolist(), strict=True))
  assert len({score for score, _ in pairs}) < 50  # there are ties
  assert pairs == sorted(pairs)
  np.testing.assert_array_equal(fuse(other, one, 50, fusion=Fusion()).ids_BxK, found.ids_BxK)


def test_scores_are_scaled_for_each_query_and_added():
  found = fuse(DENSE, SPARSE, 4, fusion=Fusion(by="scores", weight=0.6))
  score_of = dict(zip(found.ids_BxK[0].tolist(), found.scores_BxK[0].tolist(), strict=True))
  assert score_of == pytest.approx({3: 0.6, 1: 0.6 * 0.5 + 0.4, 7: 0.4 * 0.5, 2: 0.0})
  shifted = SearchResults(DENSE.ids_BxK, 7 * DENSE.scores_BxK - 3)
  again = fuse(shifted, SPARSE, 4, fusion=Fusion(by="scores", weight=0.6))
  np.testing.assert_array_equal(found.ids_BxK, again.ids_BxK)


@pytest.mark.parametrize("by", ["ranks", "scores"])
@pytest.mark.parametrize(("weight", "alone"), [(1.0, DENSE), (0.0, SPARSE)])
def test_a_ranking_with_all_the_weight_comes_first_unchanged(by, weight, alone):
  found = fuse(DENSE, SPARSE, 3, fusion=Fusion(by=by, weight=weight))
  best = alone.ids_BxK[0, :2]  # by scores, the last one found counts as much as those not found
  np.testing.assert_array_equal(found.ids_BxK[0, :2], best)


def test_the_last_passage_of_a_short_ranking_counts_more_than_one_that_is_not_found():
  short = SearchResults(
    np.array([[8, 4, MISSING]], np.int32), np.array([[6.0, 3.0, -np.inf]], np.float32)
  )
  found = fuse(_row(DENSE, 0), short, 3, fusion=Fusion(by="scores", weight=0.0))
  assert found.ids_BxK[0, :2].tolist() == [8, 4]
  np.testing.assert_allclose(found.scores_BxK[0], [1.0, 0.5, 0.0])


def test_the_order_of_queries_and_a_single_passage_do_not_matter():
  for fusion in (Fusion(), Fusion(by="scores")):
    rows = [
      fuse(_row(DENSE, row), _row(SPARSE, row), 4, fusion=fusion).ids_BxK[0] for row in (1, 0)
    ]
    both = fuse(DENSE, SPARSE, 4, fusion=fusion).ids_BxK
    np.testing.assert_array_equal(np.stack(rows), both[::-1])
    one = SearchResults(np.array([[4]], np.int32), np.array([[-3.0]], np.float32))
    assert fuse(one, one, 2, fusion=fusion).scores_BxK[0, 0] > 0


def _row(results, row):
  return SearchResults(results.ids_BxK[row : row + 1], results.scores_BxK[row : row + 1])


class _Base:
  def search(self, queries_BxE, k):
    assert k == 100
    return DENSE


def test_rows_beyond_the_texts_are_searched_in_the_index_alone():
  searcher = FusedSearcher(_Base(), lambda k: _row(SPARSE, 0), Fusion())
  found = searcher.search(np.zeros((2, 1)), 3)
  np.testing.assert_array_equal(found.ids_BxK, [[1, 3, 7], [5, 6, MISSING]])
