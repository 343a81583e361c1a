from realm_jax.stopwatch import START, Stopwatch


class Clock:
  """Runs when told to."""

  now = 100.0

  def __call__(self):
    return self.now

  def run(self, seconds):
    self.now += seconds


def test_every_moment_belongs_to_the_innermost_activity():
  clock = Clock()
  watch = Stopwatch(clock)
  clock.run(1)
  with watch.during("step"):
    clock.run(2)
    with watch.during("data"):
      clock.run(4)
      assert watch.totals() == {START: 1, "step": 2, "data": 4}
    clock.run(8)
  clock.run(16)
  assert watch.totals() == {START: 17, "step": 10, "data": 4}
  watch.restart()
  assert watch.totals() == {START: 0}


def test_an_activity_ends_with_an_error():
  clock = Clock()
  watch = Stopwatch(clock)

  @watch.during("step")
  def fails():
    clock.run(1)
    raise ValueError

  for _ in range(2):
    try:
      fails()
    except ValueError:
      clock.run(2)
  assert watch.totals() == {START: 4, "step": 2}


def test_of_spans_within_each_other_every_moment_is_moved_once():
  clock = Clock()
  watch = Stopwatch(clock)
  clock.run(10)
  watch.move(2, "compile")
  clock.run(1)
  watch.move(1, "compile")
  clock.run(1)
  watch.move(5, "compile")  # has both of them
  clock.run(3)
  watch.move(2, "compile")
  assert watch.totals() == {START: 8, "compile": 7}
