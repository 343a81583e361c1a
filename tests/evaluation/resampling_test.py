import numpy as np
import pytest

from realm_jax.evaluation.resampling import bootstrap_intervals, compare, holm


def test_an_interval_is_as_wide_as_theory_says():
  random = np.random.default_rng(0)
  coins = (random.random(1000) < 0.3).astype(float)
  normal = random.normal(5, 2, 1000)
  intervals = bootstrap_intervals({"coins": coins, "normal": normal})
  for name, values in (("coins", coins), ("normal", normal)):
    low, high = intervals[name]
    half = 1.96 * values.std() / np.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=half / 8)
    assert high == pytest.approx(values.mean() + half, abs=half / 8)


def test_a_comparison_has_the_sign_tests_p_value():
  # 12 questions of 100 differ, 10 in favour of the first: P(at most 2 or at least 10 of 12 coins).
  first = np.r_[np.ones(10), np.zeros(2), np.ones(88)]
  second = np.r_[np.zeros(10), np.ones(2), np.ones(88)]
  expected = 2 * (1 + 12 + 66) / 2**12
  found = compare(first, second)
  assert found.p_value == pytest.approx(expected)  # 12 coins: all 4,096 ways are counted
  assert (found.first, found.second) == (0.98, 0.90)
  assert found.difference == pytest.approx(0.08)
  assert 0 < found.interval[0] < 0.08 < found.interval[1] < 0.16
  turned = compare(second, first)
  assert turned.difference == -found.difference
  assert turned.p_value == pytest.approx(found.p_value)


def test_holms_correction_keeps_the_order_and_bounds_the_family():
  # Of 4: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1, which may not be below the one before.
  assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
  assert holm([0.9, 0.8]) == [1.0, 1.0]
  assert holm([0.2]) == [0.2]
