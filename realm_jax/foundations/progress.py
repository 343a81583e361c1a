"""Progress of long work, shown only on a terminal."""

import collections
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar


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


activities = Stopwatch()


Item = TypeVar("Item")


def track(
  items: Iterable[Item],
  *,
  what: str,
  size: Callable[[Item], int] = lambda item: 1,
  fraction: Callable[[], float] | None = None,
) -> Iterator[Item]:
  """Yields the items; a terminal shows their number so far and the rate.

  Args:
    what: Name of what is counted, in the plural.
    size: Returns how many of them an item has.
    fraction: Returns the share of the work done, shown as a bar with the time left; None shows no
      bar.
  """
  if not sys.stderr.isatty():
    yield from items
    return
  import tqdm  # late, as its lock is that of all forked processes, and stays if one is killed

  with tqdm.tqdm(unit=f" {what}", leave=False, dynamic_ncols=True) as bar:
    for item in items:
      yield item
      if fraction is not None:
        bar.total = round((bar.n + size(item)) / max(fraction(), 1e-9))
      bar.update(size(item))
