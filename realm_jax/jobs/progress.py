"""Progress of long work, on a terminal only."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_SECONDS_BETWEEN_LINES = 0.2


def track(items: Iterable[Item], *, what: str) -> Iterator[Item]:
  """Yields the items; a terminal shows how many there were and the rate."""
  if not sys.stderr.isatty():
    yield from items
    return
  started = shown = time.monotonic()
  count = 0
  for item in items:
    yield item
    count += 1
    now = time.monotonic()
    if now - shown >= _SECONDS_BETWEEN_LINES:
      shown = now
      print(f"\r{count:,} {what}, {count / (now - started):,.0f}/s", end="\033[K", file=sys.stderr)
  if count:
    print("\r\033[K", end="", file=sys.stderr)
