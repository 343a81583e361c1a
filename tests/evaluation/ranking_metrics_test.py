"""Metrics of rankings, on rankings that can be scored by hand."""

import math

import numpy as np
import pytest

from realm_jax.evaluation import ranking_metrics


@pytest.mark.parametrize(
  ("is_right", "first", "recall_at_2", "num_right", "ndcg"),
  [
    ([True, False, True], 0, 1, 2, (1 + 1 / 2) / (1 + 1 / math.log2(3))),
    ([False, True], 1, 1, 1, 1 / math.log2(3)),
    ([False, False, True], 2, 0, 1, 1 / 2),
    ([False] * 12 + [True], 12, 0, 1, 0.0),
    ([], math.inf, 0, 3, 0.0),
    ([True] * 10, 0, 1, 30, 1.0),
  ],
)
def test_a_ranking_is_scored_by_its_right_places(is_right, first, recall_at_2, num_right, ndcg):
  assert ranking_metrics.first_right(is_right) == first
  assert ranking_metrics.recalls([first], [2])["recall@2"].tolist() == [recall_at_2]
  assert ranking_metrics.ndcg(is_right, num_right) == pytest.approx(ndcg)


def test_recall_has_a_value_for_each_ranking():
  found = ranking_metrics.recalls([0, np.inf, 4], (1, 5))
  assert {name: values.tolist() for name, values in found.items()} == {
    "recall@1": [1, 0, 0],
    "recall@5": [1, 0, 1],
  }
