import functools
import logging
import threading
import time

import numpy as np
import pytest

from realm_jax.devices import processes
from realm_jax.index.generations import DamagedGenerationError, ForeignGenerationError
from realm_jax.retrieval.index_refresher import (
  IndexRefresher,
  LoadedGeneration,
  RefreshConfig,
  StaleIndexError,
)

SOON = RefreshConfig(poll_seconds=0.005)


class Shelf:
  """Generations in memory; the number of each is a tenth of its training step."""

  def __init__(self, *published):
    self.published = list(published)
    self.unloadable = {}
    self.loaded = []
    self.looks = 0
    self.gate = threading.Event()
    self.gate.set()

  def newest(self):
    self.looks += 1
    if isinstance(self.published, Exception):
      raise self.published
    return max(self.published, default=None)

  def load(self, generation):
    self.gate.wait(5)
    self.loaded.append(generation)
    if generation in self.unloadable:
      raise self.unloadable[generation]
    return LoadedGeneration(
      generation=generation,
      searcher=f"searcher {generation}",
      training_step=10 * generation,
      created=time.time() - 100,
    )


def never():
  return False


def swapped(refresher, step, stop=never):
  return [loaded.generation for loaded in refresher.before_step(step, stop=stop)]


def eventually(condition):
  deadline = time.monotonic() + 5
  while not condition():
    assert time.monotonic() < deadline, "did not happen"
    time.sleep(0.002)


def further_looks(shelf, number=3):
  seen = shelf.looks
  eventually(lambda: shelf.looks >= seen + number)


def test_the_first_generation_is_waited_for():
  shelf = Shelf()
  with IndexRefresher(shelf, config=SOON) as refresher:
    publisher = threading.Timer(0.05, shelf.published.append, [3])
    publisher.start()
    assert refresher.first(stop=never)
    publisher.join()
    assert refresher.current.generation == 3
    assert refresher.swaps == 0
    assert refresher.staleness_steps(42) == 12
    assert refresher.age_seconds() == pytest.approx(100, abs=30)


def test_a_first_generation_that_is_damaged_is_waited_out():
  shelf = Shelf(1)
  shelf.unloadable[1] = DamagedGenerationError("torn")
  with IndexRefresher(shelf, config=SOON) as refresher:
    publisher = threading.Timer(0.1, shelf.published.append, [2])
    publisher.start()
    assert refresher.first(stop=never)
    assert refresher.current.generation == 2
    publisher.join()


def test_a_new_generation_is_taken_between_steps_and_only_when_asked():
  shelf = Shelf(1)
  with IndexRefresher(shelf, config=SOON) as refresher:
    refresher.first(stop=never)
    shelf.published.append(2)
    eventually(lambda: 2 in shelf.loaded)
    time.sleep(0.05)
    assert refresher.current.generation == 1
    assert swapped(refresher, 7) == [2]
    assert refresher.current.searcher == "searcher 2"
    assert refresher.swaps == 1
    assert not swapped(refresher, 8)
    assert refresher.swaps == 1


def test_only_the_newest_is_loaded_each_once_and_never_an_older_one():
  shelf = Shelf(5)
  with IndexRefresher(shelf, config=SOON) as refresher:
    refresher.first(stop=never)
    shelf.published[:] = [4]  # the newest was taken away
    further_looks(shelf)
    shelf.published[:] = [5]
    further_looks(shelf)
    shelf.published[:] = [6, 7, 8]
    eventually(lambda: 8 in shelf.loaded)
    assert refresher.swap().generation == 8
    further_looks(shelf)
  assert shelf.loaded == [5, 8]
  assert refresher.swaps == 1


@pytest.mark.parametrize(
  "error",
  [
    ValueError("is of\nanother corpus"),
    DamagedGenerationError("torn"),
    ForeignGenerationError("of another run"),
  ],
)
def test_a_generation_that_can_never_be_used_is_reported_once_and_passed_over(caplog, error):
  shelf = Shelf(1)
  shelf.unloadable[2] = error
  with caplog.at_level(logging.ERROR), IndexRefresher(shelf, config=SOON) as refresher:
    refresher.first(stop=never)
    shelf.published.append(2)
    eventually(lambda: 2 in shelf.loaded)
    further_looks(shelf)
    assert refresher.swap() is None
    assert refresher.current.generation == 1
    shelf.published.append(3)
    eventually(lambda: refresher.swap() is not None)
    assert refresher.current.generation == 3
  assert shelf.loaded == [1, 2, 3]
  (report,) = [r.getMessage() for r in caplog.records if "not used" in r.getMessage()]
  assert report.startswith("index generation 2 not used: ")
  assert "\n" not in report


@pytest.mark.parametrize("first", [True, False])
def test_a_failure_that_may_pass_is_tried_again_later_and_later(caplog, first):
  """No newer generation can come: the builder waits for a checkpoint, the trainer for this one."""
  shelf, generation = Shelf(*([] if first else [1])), 1 if first else 2
  shelf.unloadable[generation] = OSError("503")
  with caplog.at_level(logging.ERROR), IndexRefresher(shelf, config=SOON) as refresher:
    if not first:
      refresher.first(stop=never)
    shelf.published.append(generation)
    began = time.monotonic()
    eventually(lambda: refresher.swap() or shelf.loaded.count(generation) == 5)
    assert time.monotonic() - began >= 0.005 * (1 + 2 + 4 + 8)
    assert f"generation {generation} cannot be loaded now, will retry: 503" in caplog.text
    del shelf.unloadable[generation]
    eventually(refresher.swap)
    assert refresher.current.generation == generation


def test_a_look_that_fails_does_not_end_the_watch(caplog):
  shelf = Shelf(1)
  with caplog.at_level(logging.ERROR), IndexRefresher(shelf, config=SOON) as refresher:
    refresher.first(stop=never)
    shelf.published = OSError("bucket unreachable")
    further_looks(shelf)
    shelf.published = [2]
    eventually(lambda: refresher.swap() is not None)
    assert refresher.current.generation == 2
  assert "bucket unreachable" in caplog.text


class Job:
  """Refreshers of several processes, which exchange what they sent in the previous round."""

  def __init__(self, monkeypatch, *shelves):
    self.shelves, self._sent, self._before = shelves, {}, None
    self.refreshers = []
    for process, shelf in enumerate(shelves):
      monkeypatch.setattr(processes, "is_first", lambda process=process: process == 0)
      refresher = IndexRefresher(shelf, config=SOON)
      refresher._exchange = lambda numbers, process=process: self._told(process, numbers)
      self.refreshers.append(refresher)

  def _told(self, process, numbers):
    self._sent[process] = numbers
    return self._before

  def step(self):
    """Lets each process swap; returns the generations that they use now."""
    for refresher in self.refreshers:
      refresher.swap()
    self._before, self._sent = np.array([self._sent[p] for p in sorted(self._sent)]), {}
    return [r._current and r._current.generation for r in self.refreshers]

  def __enter__(self):
    for refresher in self.refreshers:
      refresher.__enter__()
    return self

  def __exit__(self, *_):
    for refresher in self.refreshers:
      refresher.__exit__()


def test_processes_swap_together_whatever_fails_and_however_late(monkeypatch):
  """Rounds, loads and failures in random order: no round ends with different generations."""
  random = np.random.default_rng(0)
  shelves = [Shelf(0) for _ in range(3)]

  def load(shelf, generation):
    time.sleep(random.random() * 0.004)
    if random.random() < 0.3:
      raise OSError("503")
    return Shelf.load(shelf, generation)

  for shelf in shelves:
    monkeypatch.setattr(shelf, "load", functools.partial(load, shelf))
  with Job(monkeypatch, *shelves) as job:
    deadline, used = time.monotonic() + 20, set()
    while len(used) < 8:
      generations = job.step()
      assert len(set(generations)) == 1 and time.monotonic() < deadline
      used.update(generations)
      time.sleep(random.random() * 0.004)
      shelves[0].published[:] = [len(used)]


def late(when_late, **settings):
  return RefreshConfig(poll_seconds=0.005, when_late=when_late, **settings)


def test_a_late_index_stops_the_run_where_so_configured():
  with IndexRefresher(Shelf(1), config=late("stop", max_staleness_steps=5)) as refresher:
    refresher.first(stop=never)
    assert not swapped(refresher, 15)  # generation 1 is of step 10
    with pytest.raises(StaleIndexError, match="generation 1 is 6 steps old at step 16, more than"):
      swapped(refresher, 16)


def test_a_late_index_is_waited_for_where_so_configured():
  shelf = Shelf(1)
  with IndexRefresher(shelf, config=late("wait", max_staleness_steps=5)) as refresher:
    refresher.first(stop=never)
    assert not swapped(refresher, 15)
    # One generation is not new enough; the wait goes on to the next.
    timers = [threading.Timer(s, shelf.published.append, [g]) for s, g in ((0.05, 2), (0.15, 4))]
    for timer in timers:
      timer.start()
    assert swapped(refresher, 40) == [2, 4]
    for timer in timers:
      timer.join()


def test_an_index_that_cannot_be_young_enough_is_refused():
  for when_late in ("wait", "stop"):
    config = late(when_late, max_staleness_steps=5)
    config.check_reachable(checkpoint_every=5)
    with pytest.raises(ValueError, match="max_staleness_steps=5 with checkpoint_every=6: an index"):
      config.check_reachable(checkpoint_every=6)
  late("continue", max_staleness_steps=5).check_reachable(checkpoint_every=6)
  late("continue").check_reachable(checkpoint_every=6)
