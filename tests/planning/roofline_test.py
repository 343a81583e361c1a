import pytest

from realm_jax.planning import chips
from realm_jax.planning.roofline import Work, roofline

CHIP = chips.CHIPS["v5e"]


@pytest.mark.parametrize(
  ("work", "bound", "seconds"),
  [
    (Work(flops=197e12, memory_bytes=1.0), "compute", 1.0),
    (Work(flops=1.0, memory_bytes=2 * 819e9, link_bytes=1.0), "memory", 2.0),
    (Work(flops=1.0, memory_bytes=1.0, link_bytes=600e9), "links", 3.0),
  ],
)
def test_the_slowest_part_decides(work, bound, seconds):
  found = roofline(work, CHIP)
  assert (found.bound, found.seconds) == (bound, pytest.approx(seconds))


def test_what_is_moved_once_is_not_repeated():
  work = Work(flops=3.0, memory_bytes=10.0, link_bytes=1.0)
  assert work.repeated(1, once_bytes=4) == work
  assert work.repeated(3, once_bytes=4) == Work(flops=9.0, memory_bytes=22.0, link_bytes=3.0)
