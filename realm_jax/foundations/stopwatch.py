"""Where the time of a training step goes besides the step itself."""

import collections
import contextlib
import time
from collections.abc import Callable, Iterator


class Stopwatch:
  """Adds up the seconds of named activities, those of an inner one without the outer one.

  Args:
    clock: Returns seconds that never run backwards.

  Attributes:
    totals: Seconds of each activity so far.
  """

  def __init__(self, clock: Callable[[], float] = time.perf_counter):
    self._clock, self._inner = clock, 0.0
    self.totals: collections.defaultdict[str, float] = collections.defaultdict(float)

  @contextlib.contextmanager
  def during(self, activity: str) -> Iterator[None]:
    """Adds the time until the end of the context to an activity; also a decorator."""
    began, before, self._inner = self._clock(), self._inner, 0.0
    try:
      yield
    finally:
      seconds = self._clock() - began
      self.totals[activity] += seconds - self._inner
      self._inner = before + seconds


job = Stopwatch()
