import numpy as np
import pytest

from realm_jax.index.vectors.cells import Cells, inner_products
from tests.clustered import clustered

N, K = 4000, 10
NONE, ALL = np.zeros(0, np.int64), np.ones(N, bool)


@pytest.fixture(scope="module")
def vectors():
  return clustered(N, num_queries=200)


@pytest.fixture(scope="module")
def cells(vectors):
  return Cells.of(vectors[0])


def best(rows, scores, k=K):
  return rows[np.lexsort((rows, -scores))[:k]].tolist()


def test_nearest_cells_have_nearly_all_of_the_best(cells, vectors):
  embeddings_NxE, queries_BxE = vectors
  assert 1 <= cells.probes < len(cells.ends) / 4, "clusters are found"
  hits, read = 0, 0
  for query_E in queries_BxE:
    rows, scores = cells.search(query_E, K, live_N=ALL, also=NONE)
    exact_N = inner_products(embeddings_NxE, query_E)
    np.testing.assert_array_equal(scores, exact_N[rows])
    assert len(np.unique(rows)) == len(rows)
    hits += len({*best(rows, scores)} & {*best(np.arange(N), exact_N)})
    read += len(rows)
  assert hits >= 0.95 * K * len(queries_BxE) and read < N * len(queries_BxE) / 4


def test_more_is_read_for_more_passages(cells, vectors):
  query_E = vectors[1][0]
  sizes = [len(cells.search(query_E, k, live_N=ALL, also=NONE)[0]) for k in (1, 10, 1000, 10**6)]
  assert sizes[0] == sizes[1] < sizes[2] < sizes[3] == N


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5])
def test_of_few_matching_rows_all_are_read(cells, vectors, share):
  embeddings_NxE, queries_BxE = vectors
  among = np.random.default_rng(0).random(N) < share
  found = best_of_all = 0
  for query_E in queries_BxE:
    rows, scores = cells.search(query_E, K, matching=among.__getitem__, live_N=ALL, also=NONE)
    assert among[rows].all()
    scores_N = np.where(among, inner_products(embeddings_NxE, query_E), -np.inf)
    expected = {*best(np.arange(N), scores_N, min(K, among.sum()))}
    found += len({*best(rows, scores)} & expected)
    best_of_all += len(expected)
  few = among.sum() <= cells.probes * N // len(cells.ends)
  assert found == best_of_all if few else found >= 0.95 * best_of_all


def test_other_rows_are_read_once_wherever_they_are(cells, vectors):
  also = np.arange(0, N, 40)
  rows, scores = cells.search(vectors[1][0], K, live_N=ALL, also=also)
  assert {*also.tolist()} <= {*rows.tolist()} and len(np.unique(rows)) == len(rows)
  np.testing.assert_array_equal(scores, inner_products(vectors[0], vectors[1][0])[rows])


def test_moments_are_those_of_the_live_rows(cells, vectors):
  embeddings_NxE, queries_BxE = vectors
  draw = np.random.default_rng(0)
  newer, older = draw.random(N) < 0.7, draw.random(N) < 0.9
  products_N = embeddings_NxE.astype(np.float64) @ queries_BxE[0]
  rounding = 64 * np.finfo(np.float64).eps * (products_N**2).sum()
  for live in (newer | older, newer, newer, older, np.ones(N, bool), np.zeros(N, bool)):
    count, total, squares = cells.moments_of(live).spread(queries_BxE[0])
    assert count == live.sum()
    assert total == pytest.approx(products_N[live].sum(), abs=rounding)
    assert squares == pytest.approx((products_N[live] ** 2).sum(), abs=rounding)


@pytest.mark.parametrize("scale", [0, 1, 30])
def test_embeddings_of_any_length_are_divided(scale):
  draw = np.random.default_rng(0)
  embeddings_NxE = draw.normal(size=(300, 4)).astype(np.float32) * draw.integers(1 + scale)
  made = Cells.of(embeddings_NxE)
  rows, scores = made.search(embeddings_NxE[0], 10**6, live_N=np.ones(300, bool), also=NONE)
  assert np.sort(rows).tolist() == [*range(300)] and made.ends[-1] == 300
  np.testing.assert_array_equal(scores, inner_products(embeddings_NxE, embeddings_NxE[0])[rows])
