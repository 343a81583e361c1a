"""What benchmarks share: reading, timing, and what they print and write."""

import gzip
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np


def read(path: str | os.PathLike) -> Iterator[dict]:
  """Yields the lines of JSON Lines, perhaps compressed."""
  opened = gzip.open if os.fspath(path).endswith(".gz") else open
  with opened(path, "rt", encoding="utf-8") as file:
    yield from map(json.loads, file)


def write(path: str | None, result: Any) -> None:
  """Writes a result as JSON, if there is a path."""
  if path:
    with open(path, "w", encoding="utf-8") as file:
      json.dump(result, file, indent=2)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
  """Returns the seconds of a call, and its result."""
  start = time.perf_counter()
  result = call()
  return time.perf_counter() - start, result


def cpu_in_turns(items: Iterable[Any], *calls: Callable[[Any], Any]) -> list[float]:
  """Returns the median milliseconds of CPU that each call takes for one of the items.

  They take turns, because other work comes and goes.
  """
  times = []
  for item in items:
    marks = [time.thread_time()]
    for call in calls:
      call(item)
      marks.append(time.thread_time())
    times.append(np.diff(marks))
  return (1000 * np.median(times, axis=0)).tolist()


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns a table in Markdown; floats have four digits."""
  lines = [header, ["---"] * len(header)]
  lines += [[f"{c:,.4g}" if isinstance(c, float) else f"{c}" for c in row] for row in rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)
