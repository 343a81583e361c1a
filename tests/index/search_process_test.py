"""A searcher in a process of its own: answers, errors, and no pause of this process."""

import ctypes
import threading
import time

import numpy as np
import pytest

from realm_jax.devices import datatypes
from realm_jax.index.vectors.search_process import SearchProcess

QUERIES = np.arange(6, dtype=np.float32).reshape(3, 2)


class FirstRows:
  def search(self, queries_BxE, k):
    if k > 9:
      raise ValueError(f"k={k} is too many")
    ids_BxK = np.tile(np.arange(k, dtype=np.int32), (len(queries_BxE), 1))
    return datatypes.SearchResults(ids_BxK, queries_BxE[:, :1] - ids_BxK)


def load_slowly():
  ctypes.PyDLL(None).usleep(999_999)  # keeps the interpreter lock, as ScaNN does
  return FirstRows()


def fail():
  raise FileNotFoundError("generation 3 is gone")


def start(load):
  return SearchProcess(load, preload="realm_jax.index.vectors.search_process")


def test_no_thread_waits_while_a_searcher_is_loaded():
  gaps, loaded = [], threading.Event()

  def tick():
    last = time.perf_counter()
    while not loaded.is_set():
      time.sleep(0.001)
      gaps.append(time.perf_counter() - last)
      last += gaps[-1]

  ticking = threading.Thread(target=tick)
  ticking.start()
  started = time.perf_counter()
  found = start(load_slowly).search(QUERIES, 4)
  seconds = time.perf_counter() - started
  loaded.set()
  ticking.join()
  assert max(gaps) < 0.5 < seconds
  np.testing.assert_array_equal(found.ids_BxK, FirstRows().search(QUERIES, 4).ids_BxK)
  np.testing.assert_array_equal(found.scores_BxK, FirstRows().search(QUERIES, 4).scores_BxK)


def test_errors_of_loading_and_searching_are_raised_here():
  with pytest.raises(FileNotFoundError, match="generation 3 is gone"):
    start(fail)
  searcher = start(FirstRows)
  with pytest.raises(ValueError, match="k=10 is too many"):
    searcher.search(QUERIES, 10)
  assert searcher.search(QUERIES, 2).ids_BxK.shape == (3, 2)


def test_the_process_ends_with_its_searcher_and_its_death_is_reported():
  searcher = start(FirstRows)
  process = searcher._process
  process.terminate()  # ignored: a run that is told to stop still searches
  assert searcher.search(QUERIES, 1).ids_BxK.shape == (3, 1)
  del searcher
  process.join(timeout=60)
  assert process.exitcode == 0
  searcher = start(FirstRows)
  searcher._process.kill()
  for _ in range(2):
    with pytest.raises(ChildProcessError, match="most likely because memory ran out"):
      searcher.search(QUERIES, 1)
