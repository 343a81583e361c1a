"""Progress of long work, on a terminal only."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_SECONDS_BETWEEN_LINES = 0.2
_BAR_WIDTH = 20


def track(
  items: Iterable[Item],
  *,
  what: str,
  size: Callable[[Item], int] = lambda item: 1,
  fraction: Callable[[], float] | None = None,
) -> Iterator[Item]:
  """Yields the items; a terminal shows how many there were and the rate.

  Args:
    items: of any number.
    what: is counted.
    size: of it an item holds.
    fraction: the share of the whole that is done, shown as a bar; None: not known.
  """
  if not sys.stderr.isatty():
    yield from items
    return
  started = shown = time.monotonic()
  count = 0
  for item in items:
    yield item
    count += size(item)
    now = time.monotonic()
    if now - shown >= _SECONDS_BETWEEN_LINES:
      shown = now
      bar = "" if fraction is None else _bar(fraction())
      rate = count / (now - started)
      print(f"\r{bar}{count:,} {what}, {rate:,.0f}/s", end="\033[K", file=sys.stderr)
  if count:
    print("\r\033[K", end="", file=sys.stderr)


def _bar(fraction: float) -> str:
  full = round(_BAR_WIDTH * fraction)
  return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {fraction:4.0%}  "
