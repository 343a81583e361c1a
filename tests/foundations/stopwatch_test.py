import contextlib

from realm_jax.foundations.progress import Stopwatch


def test_every_moment_belongs_to_the_innermost_activity_also_when_it_fails():
  now = iter([1.0, 2.0, 10.0, 14.0, 20.0, 21.0])
  watch = Stopwatch(lambda: next(now))

  @watch.during("swap")
  def fails():
    raise ValueError

  with watch.during("data"):
    for _ in range(2):
      with contextlib.suppress(ValueError):
        fails()
  assert watch.totals == {"swap": 14.0, "data": 6.0}
