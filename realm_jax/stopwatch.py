"""Where the time of a job goes: how its main thread divides it among activities."""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

START = "start"  # until the job says something else


class Stopwatch:
  """Gives every moment to the innermost activity under way.

  Args:
    clock: Returns seconds that never run backwards.
  """

  def __init__(self, clock: Callable[[], float] = time.perf_counter):
    self._clock = clock
    self._lock = threading.Lock()
    self.restart()

  def restart(self) -> None:
    """Forgets everything; from now on it is `START`."""
    self._activity, self._since = START, self._clock()
    self._totals: defaultdict[str, float] = defaultdict(float)
    self._moved: list[tuple[float, float]] = []

  def totals(self) -> defaultdict[str, float]:
    """Returns the seconds of every activity so far; any thread may ask."""
    with self._lock:
      self._settle()
      return self._totals.copy()

  @contextlib.contextmanager
  def during(self, activity: str) -> Iterator[None]:
    """Gives the time until the end of the context to an activity; also a decorator."""
    outer = self._switch(activity)
    try:
      yield
    finally:
      self._switch(outer)

  def move(self, seconds: float, activity: str) -> None:
    """Gives the last seconds to another activity than the current one, each moment once."""
    with self._lock:
      self._settle()
      began, within = self._since - seconds, 0.0
      while self._moved and self._moved[-1][0] >= began:
        within += self._moved.pop()[1]
      self._moved.append((began, seconds))
      self._totals[self._activity] -= seconds - within
      self._totals[activity] += seconds - within

  def _switch(self, activity: str) -> str:
    with self._lock:
      self._settle()
      before, self._activity = self._activity, activity
      return before

  def _settle(self) -> None:
    now = self._clock()
    self._totals[self._activity] += now - self._since
    self._since = now


job = Stopwatch()
