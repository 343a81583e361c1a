"""Waits until files change."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence

import watchfiles
from absl import logging

_SECONDS = 1.0  # between looks whether a folder was replaced
_SHARE = 20  # of the time that looking for changes takes at most, where the system tells none
_MODIFIED = watchfiles.Change.modified
_QUIET, _LONGEST = 500, 10_000  # ms without a change, after which those before are one; at most


def changes(paths: Sequence[str], *, outside: str) -> Iterator[bool]:
  """Yields True as soon as changes are seen, and after some; now and then False.

  Changes that follow each other closely are one, as when a program empties a file and writes it
  anew. A folder that is replaced is followed; links below one are not, nor what cannot be read.
  Where the system tells no changes, as of too many folders, it yields True now and then.

  Args:
    paths: Folders, with all that is below them, and files.
    outside: A folder whose changes are none.
  """
  outside, refusal = os.path.realpath(outside), ""
  while True:
    before = _identities([*paths, *_folders(paths, outside=outside)])
    is_refused = False
    try:
      is_new = True  # what changed before is seen by who looks now
      for changed in watchfiles.watch(
        *before,
        watch_filter=lambda _, path: not f"{os.path.realpath(path)}/".startswith(f"{outside}/"),
        step=_QUIET,
        debounce=_LONGEST,
        rust_timeout=int(1000 * _SECONDS),
        yield_on_timeout=True,
        recursive=False,  # as that follows links, and ends at what cannot be read
        ignore_permission_denied=True,
      ):
        yield is_new or bool(changed)
        look = {*paths}
        if is_new or changed:
          look |= {*_folders(paths, outside=outside)}
        if any(before.get(path, ()) != now for path, now in _identities(look).items()):
          break
        # One that is made where another was deleted may have its number, and is not watched.
        replaced = {os.path.abspath(path) for change, path in changed if change != _MODIFIED}
        if not replaced.isdisjoint(map(os.path.abspath, before)):
          break
        is_new = False
    except FileNotFoundError:  # it is gone since then
      pass
    except (OSError, RuntimeError) as error:
      if refusal != (refusal := str(error)):
        logging.warning("the system does not report changes, so they are looked for: %s", error)
      is_refused = True
    begun = time.monotonic()
    yield True
    if is_refused:
      time.sleep(max(_SECONDS, (_SHARE - 1) * (time.monotonic() - begun)))
    while None in _identities(paths).values():
      time.sleep(_SECONDS)
      yield False


def _folders(paths: Sequence[str], *, outside: str) -> Iterator[str]:
  """Yields folders and all below them that can be read, without what links lead to."""
  for path in paths:
    for folder, below, _ in os.walk(path):
      below[:] = [name for name in below if os.path.join(os.path.realpath(folder), name) != outside]
      yield folder


def _identities(paths: Iterable[str]) -> dict[str, tuple[int, int, bool] | None]:
  """Returns what each path is and whether it can be read, or None where there is nothing."""
  found: dict[str, tuple[int, int, bool] | None] = {}
  for path in paths:
    try:
      stat = os.stat(path)
      found[path] = stat.st_dev, stat.st_ino, os.access(path, os.R_OK)
    except OSError:
      found[path] = None
  return found
