"""Maps a function over many items in several processes, in order and in bounded memory."""

import collections
import concurrent.futures
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_ITEMS_AHEAD = 2  # submitted per worker, including the one in progress
_RESULTS_KEPT = 4  # per worker, while an earlier item is in progress

_function: Callable[[Any], Any] | None = None


def ordered_map(
  function: Callable[[Item], Result],
  items: Iterable[Item],
  *,
  num_workers: int,
  preload: Sequence[str] = (),
) -> Iterator[Result]:
  """Yields the result for each item, in order.

  Args:
    function: Sent once to every other process.
    items: Consumed only as fast as the results are.
    num_workers: Number of processes, including this one.
    preload: Modules that several other processes share in memory.

  Raises:
    ValueError: If `num_workers` is below 1.
    ChildProcessError: If another process dies.
  """
  if num_workers < 1:
    raise ValueError(f"num_workers={num_workers}; use at least one")
  if num_workers == 1:
    yield from map(function, items)
    return
  others = num_workers - 1
  # Forking this process would copy TensorFlow's threads in an unknown state.
  context = multiprocessing.get_context("forkserver")
  # A single worker has nothing to share, and the server would hold another copy.
  context.set_forkserver_preload(list(preload) if others > 1 else [])
  with concurrent.futures.ProcessPoolExecutor(
    others, mp_context=context, initializer=_install, initargs=(function,)
  ) as pool:
    results: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for item in items:
        if sum(not result.done() for result in results) < others * _ITEMS_AHEAD:
          results.append(pool.submit(_call, item))
        else:
          results.append(_finished(function(item)))
        while results and (results[0].done() or len(results) > others * _RESULTS_KEPT):
          yield results.popleft().result()
      while results:
        yield results.popleft().result()
    except BrokenProcessPool as error:
      raise ChildProcessError(
        "a worker process died, most likely because memory ran out; lower --num_workers"
      ) from error
    finally:
      for result in results:
        result.cancel()


def _finished(result) -> concurrent.futures.Future:
  future: concurrent.futures.Future = concurrent.futures.Future()
  future.set_result(result)
  return future


def _install(function: Callable[[Any], Any]) -> None:
  global _function
  _function = function
  # Garbage collection would write to all memory shared with other workers.
  gc.freeze()
  # Accelerators are left to the training process.
  os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
  # The processes already occupy the cores; TensorFlow's threads would only cost memory.
  os.environ["TF_NUM_INTEROP_THREADS"] = os.environ["TF_NUM_INTRAOP_THREADS"] = "1"


def _call(item):
  assert _function is not None, "the worker has not been given its function"
  return _function(item)
