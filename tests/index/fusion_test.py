import numpy as np
import pytest

from realm_jax.index.fusion import Spread, fuse, fuse_scores

RNG = np.random.default_rng(0)
DENSE, SPARSE = RNG.normal(size=(2, 3, 40))


def test_each_query_weighs_both_scores_whatever_their_scale():
  fused = fuse_scores(DENSE, SPARSE)
  scales_Bx1 = np.array([[1e-3], [1.0], [1e4]])
  np.testing.assert_allclose(fuse_scores(scales_Bx1 * DENSE - 5, 7 * SPARSE + 1), fused, atol=1e-6)
  for query in range(3):
    np.testing.assert_allclose(fuse_scores(DENSE[query], SPARSE[query]), fused[query], atol=1e-12)
  for weight, alone in ((1.0, DENSE), (0.0, SPARSE)):
    only = fuse_scores(DENSE, SPARSE, weight=weight)
    np.testing.assert_array_equal(np.argsort(only), np.argsort(alone))
    assert only.mean(axis=-1) == pytest.approx(0) and only.std(axis=-1) == pytest.approx(1)


def test_spreads_of_parts_add_up_to_that_of_all():
  parts = [Spread.of(DENSE[:, :7]), Spread.of(DENSE[:, 7:7]), Spread.of(DENSE[:, 7:])]
  spreads = parts[0].plus(parts[1]).plus(parts[2]), Spread.of(SPARSE)
  fused = fuse(DENSE[:, 5:9], SPARSE[:, 5:9], spreads=spreads)
  np.testing.assert_allclose(fused, fuse_scores(DENSE, SPARSE)[:, 5:9], atol=1e-12)


@pytest.mark.parametrize("score", [0, 1 / 3, 1e6])
def test_scores_that_are_all_equal_do_not_count(score):
  equal = np.full(DENSE.shape, score, np.float32)
  fused = fuse_scores(equal, SPARSE)
  np.testing.assert_allclose(fused, fuse_scores(DENSE, SPARSE, weight=0) * 0.4, atol=1e-6)
