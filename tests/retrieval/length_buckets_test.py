import numpy as np
import pytest

from realm_jax.retrieval import retriever

LENGTHS = np.random.default_rng(0).integers(10, 289, 5000)
SIZES = {"num_rows": 56, "longest": 288, "shortest": ((8, 3),)}
PLANS = retriever.plans(LENGTHS, **SIZES)


def cost(buckets):
  return sum(rows * length for rows, length in buckets)


def drawn(seed):
  lengths = np.random.default_rng(seed).choice(LENGTHS, 8 * 7)
  return np.random.default_rng(seed).permutation(np.concatenate([np.full(8, 3), lengths]))


def test_plans_are_few_hold_the_batch_and_are_cheapest_first():
  assert len(PLANS) <= 3
  assert all(sum(rows for rows, _ in buckets) == 64 for buckets in PLANS)
  costs = [cost(buckets) for buckets in PLANS]
  assert costs == sorted(costs) and costs[-1] < 64 * 288


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_plan_is_the_first_that_holds_every_sequence(seed):
  lengths = drawn(seed)
  chosen = retriever.choose(PLANS, lengths)
  room = np.concatenate([np.full(rows, length) for rows, length in chosen])
  assert (np.sort(lengths) <= room).all()
  for cheaper in PLANS[: PLANS.index(chosen)]:
    room = np.concatenate([np.full(rows, length) for rows, length in cheaper])
    assert (np.sort(lengths) > room).any()
