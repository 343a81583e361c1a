import numpy as np
import pytest

from realm_jax.evaluation import grouped_rows
from realm_jax.evaluation.grouped_rows import RowCollector


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_rows_come_back_by_group_in_the_order_they_came(monkeypatch, at_once):
  monkeypatch.setattr(grouped_rows, "_ROWS_AT_ONCE", at_once)
  random = np.random.default_rng(0)
  collector, expected = RowCollector(5, width=2), [[] for _ in range(5)]
  for size in (0, 3, 20, 1):
    groups, rows = random.integers(0, 4, size), random.integers(-9, 9, (size, 2))
    collector.add(groups, rows)
    for group, row in zip(groups, rows.tolist(), strict=True):
      expected[group].append(row)
  grouped = collector.grouped()
  assert [grouped[group].tolist() for group in range(len(grouped))] == expected
  assert expected[4] == []
