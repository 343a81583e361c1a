"""Rates per client, settings refused."""

import pytest

from realm_jax.web.limits import RateLimit


def test_a_burst_and_then_the_rate():
  now = [0.0]
  rate = RateLimit(per_minute=60, burst=3, clock=lambda: now[0])
  assert [rate.seconds_to_wait("a") for _ in range(3)] == [0, 0, 0]
  assert rate.seconds_to_wait("a") == pytest.approx(1)
  assert rate.seconds_to_wait("b") == 0
  now[0] = 1.01
  assert rate.seconds_to_wait("a") == 0
  assert rate.seconds_to_wait("a") > 0
  now[0] = 1000
  assert [rate.seconds_to_wait("a") for _ in range(4)][2:] == [0, pytest.approx(1)]
