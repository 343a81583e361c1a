"""The k-th best score is that of a sorted list."""

import numpy as np
import pytest

from realm_jax.index.kth_best import kth_best


@pytest.mark.parametrize("size", [1, 255, 256, 257, 4000])
@pytest.mark.parametrize("values", [3, 1_000_000])
def test_the_kth_best_is_that_of_a_sorted_list(size, values):
  scores = np.random.default_rng(size).integers(-values, values, size).astype(np.float32)
  for k in {1, min(10, size), min(16, size), size}:
    assert kth_best(scores, k) == np.sort(scores)[-k]
