"""Progress of long work, shown only on a terminal."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import tqdm

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
  with tqdm.tqdm(unit=f" {what}", disable=None, leave=False, dynamic_ncols=True) as bar:
    for item in items:
      yield item
      if fraction is not None:
        bar.total = round((bar.n + size(item)) / max(fraction(), 1e-9))
      bar.update(size(item))
