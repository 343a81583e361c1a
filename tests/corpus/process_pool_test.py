import os

import pytest

from realm_jax.corpus.process_pool import ordered_map


def described(number):
  if number < 0:
    raise ValueError(f"{number} is below 0")
  return number * number, os.getpid()


def die_elsewhere(pid):
  if os.getpid() != pid:
    os._exit(1)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_answers_come_in_the_order_of_the_items(num_workers):
  found = list(ordered_map(described, range(40), num_workers=num_workers))
  assert [square for square, _ in found] == [n * n for n in range(40)]
  here = os.getpid()
  assert len({pid for _, pid in found}) <= num_workers
  assert (num_workers == 1) == all(pid == here for _, pid in found)


def test_an_error_of_the_function_reaches_the_caller():
  with pytest.raises(ValueError, match="-1 is below 0"):
    list(ordered_map(described, [-1, 1, 2], num_workers=2))


def test_a_dead_worker_is_told_in_words():
  with pytest.raises(ChildProcessError, match="a worker process died.*lower --num_workers"):
    list(ordered_map(die_elsewhere, [os.getpid()] * 9, num_workers=2))
