import numpy as np
import pytest

from realm_jax.index.fusion import fuse_scores

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


def test_what_is_not_in_the_sample_changes_nothing():
  live = np.arange(40) % 3 > 0
  fused = fuse_scores(DENSE, SPARSE, sample=live)
  deleted = np.where(live, 0, 1e3)
  again = fuse_scores(DENSE + deleted, SPARSE - deleted, sample=live)
  np.testing.assert_array_equal(again[:, live], fused[:, live])
  np.testing.assert_allclose(fused[:, live], fuse_scores(DENSE[:, live], SPARSE[:, live]))
