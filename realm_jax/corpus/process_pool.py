"""A function over many items in several processes, answers in order, few of them in memory."""

import collections
import concurrent.futures
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_ITEMS_AHEAD = 2  # given to each worker, the one at work included
_ANSWERS_KEPT = 4  # for each worker, while an earlier item is at work

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
    function: sent to every other process once.
    items: taken only as fast as the answers are.
    num_workers: processes at work, this one included.
    preload: modules that several other processes share in memory.

  Raises:
    ValueError: if there is to be no worker.
    ChildProcessError: if another process dies.
  """
  if num_workers < 1:
    raise ValueError(f"num_workers={num_workers}; use at least one")
  if num_workers == 1:
    yield from map(function, items)
    return
  others = num_workers - 1
  # Forking this process would copy TensorFlow's threads in whatever state they are.
  context = multiprocessing.get_context("forkserver")
  # One process shares with nobody, and the server would hold everything once more.
  context.set_forkserver_preload(list(preload) if others > 1 else [])
  with concurrent.futures.ProcessPoolExecutor(
    others, mp_context=context, initializer=_install, initargs=(function,)
  ) as pool:
    answers: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for item in items:
        if sum(not answer.done() for answer in answers) < others * _ITEMS_AHEAD:
          answers.append(pool.submit(_call, item))
        else:
          answers.append(_answered(function(item)))
        while answers and (answers[0].done() or len(answers) > others * _ANSWERS_KEPT):
          yield answers.popleft().result()
      while answers:
        yield answers.popleft().result()
    except BrokenProcessPool as error:
      raise ChildProcessError(
        "a worker process died, most likely for want of memory; use fewer with --num_workers"
      ) from error
    finally:
      for answer in answers:
        answer.cancel()


def _answered(answer) -> concurrent.futures.Future:
  future: concurrent.futures.Future = concurrent.futures.Future()
  future.set_result(answer)
  return future


def _install(function: Callable[[Any], Any]) -> None:
  global _function
  _function = function
  # A collection would write to all the memory that is shared with other workers.
  gc.freeze()
  # Accelerators belong to the process that trains.
  os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
  # The processes have the cores; TensorFlow's threads would only take memory.
  os.environ["TF_NUM_INTEROP_THREADS"] = os.environ["TF_NUM_INTRAOP_THREADS"] = "1"


def _call(item):
  return _function(item)
