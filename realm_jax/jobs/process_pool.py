"""A function over many items in several processes, answers in order, few of them in memory."""

import collections
import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_ITEMS_AHEAD = 2  # for each worker, besides the one at work

_function: Callable[[Any], Any] | None = None


def ordered_map(
  function: Callable[[Item], Answer],
  items: Iterable[Item],
  *,
  num_workers: int,
  preload: Sequence[str] = (),
) -> Iterator[Answer]:
  """Yields the answers to items in their order.

  Args:
    function: sent to every worker once.
    items: taken only as fast as the answers are.
    num_workers: processes beside this one; 1: none, everything happens here.
    preload: modules that the workers share in memory.

  Raises:
    ValueError: if there is to be no worker.
    ChildProcessError: if a worker dies.
  """
  if num_workers < 1:
    raise ValueError(f"num_workers={num_workers}; use at least one")
  if num_workers == 1:
    yield from map(function, items)
    return
  # Forking this process would copy TensorFlow's threads in whatever state they are.
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(list(preload))
  with concurrent.futures.ProcessPoolExecutor(
    num_workers, mp_context=context, initializer=_install, initargs=(function,)
  ) as pool:
    pending: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for item in items:
        pending.append(pool.submit(_call, item))
        if len(pending) > num_workers * _ITEMS_AHEAD:
          yield pending.popleft().result()
      while pending:
        yield pending.popleft().result()
    except BrokenProcessPool as error:
      raise ChildProcessError(
        "a worker process died, most likely for want of memory; use fewer with --num_workers"
      ) from error
    finally:
      for future in pending:
        future.cancel()


def _install(function: Callable[[Any], Any]) -> None:
  global _function
  _function = function
  # Accelerators belong to the process that trains.
  os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _call(item):
  return _function(item)
