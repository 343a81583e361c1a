"""Waits until files change."""

import os
import time
from collections.abc import Iterator, Sequence

import watchfiles
from absl import logging

_SECONDS = 1.0  # between looks whether a folder was replaced
_SHARE = 20  # of the time that looking for changes takes at most, where the system tells none
_QUIET, _LONGEST = 500, 10_000  # ms without a change, after which those before are one; at most


def changes(paths: Sequence[str], *, outside: str) -> Iterator[bool]:
  """Yields True as soon as changes are seen, and after some; now and then False.

  Changes that follow each other closely are one, as when a program empties a file and writes it
  anew. A folder that is replaced is followed. Where the system tells no changes, because one of the
  folders is closed or there are too many, it yields True now and then.

  Args:
    paths: Folders, with all that is below them, and files.
    outside: A folder whose changes are none.
  """
  outside, refusal = os.path.realpath(outside), ""
  while True:
    before, is_refused = _identities(paths), False
    try:
      is_new = True  # what changed before is seen by who looks now
      for changed in watchfiles.watch(
        *paths,
        watch_filter=lambda _, path: not f"{os.path.realpath(path)}/".startswith(f"{outside}/"),
        step=_QUIET,
        debounce=_LONGEST,
        rust_timeout=int(1000 * _SECONDS),
        yield_on_timeout=True,
      ):
        yield is_new or bool(changed)
        is_new = False
        if _identities(paths) != before:
          break
    except FileNotFoundError:  # it is gone since then
      pass
    except (OSError, RuntimeError) as error:
      if refusal != (refusal := str(error)):
        logging.warning("the system tells no changes, which are looked for instead: %s", error)
      is_refused = True
    begun = time.monotonic()
    yield True
    if is_refused:
      time.sleep(max(_SECONDS, (_SHARE - 1) * (time.monotonic() - begun)))
    while None in _identities(paths):
      time.sleep(_SECONDS)
      yield False


def _identities(paths: Sequence[str]) -> list[tuple[int, int] | None]:
  """Returns what each path is, or None where there is nothing."""
  found: list[tuple[int, int] | None] = []
  for path in paths:
    try:
      stat = os.stat(path)
      found.append((stat.st_dev, stat.st_ino))
    except OSError:
      found.append(None)
  return found
