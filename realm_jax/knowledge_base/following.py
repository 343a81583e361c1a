"""Keeps a knowledge base like folders that change."""

import dataclasses
import math
import os
import time
from collections.abc import Sequence

from realm_jax.corpus import input_files
from realm_jax.devices.directory_lock import DirectoryInUseError
from realm_jax.foundations import object_store, watching
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.text import terminal

_AGAIN = 60.0  # seconds, until what the disk or the system has refused is tried again


def follow(base: KnowledgeBase, texts: Sequence[str]) -> None:
  """Syncs a knowledge base with texts whenever they change, and prints a line about each change.

  It ends when it is interrupted. What was printed is kept, whatever ends it.

  Raises:
    FileNotFoundError: If texts are missing at the beginning.
    ValueError: If they are in an object store.
  """
  if remote := [text for text in texts if object_store.is_remote(text)]:
    raise ValueError(f"{remote[0]} is in an object store, which is not watched; sync it at times")
  changes = base.sync(texts)
  print(f"{changes}\n{base}\nfollowing {', '.join(texts)}; interrupt to end", flush=True)
  is_due, again, said = False, math.inf, {*changes.skipped}
  paths = [input_files.literal(input_files.local(text))[0] or os.curdir for text in texts]
  for is_changed in watching.changes(paths, outside=base.path):
    is_due = is_due or is_changed or time.monotonic() > again
    if is_due:
      again = math.inf
      try:
        lines, is_due = _sync(base, texts), False
      except DirectoryInUseError as error:  # it is tried again
        lines = [f"waiting: {error}"]
      except (ValueError, OSError) as error:
        lines, is_due = [str(error)], False
        if isinstance(error, OSError):  # such as of a full disk
          again = time.monotonic() + _AGAIN
      for line in lines:
        if line not in said:
          print(f"{time.strftime('%H:%M:%S')} {terminal.line(line)}", flush=True)
      said = {*lines}


def _sync(base: KnowledgeBase, texts: Sequence[str]) -> list[str]:
  """Returns a line about what has changed, if anything, and those about what was skipped."""
  changes = base.sync(texts)
  if not changes.added + changes.updated + changes.deleted:
    return [*changes.skipped]
  count = changes.added + changes.updated + changes.deleted
  (ids, *_) = (change.ids for change in base.history)
  done = str(dataclasses.replace(changes, unchanged=0, kept=0, skipped=()))
  return [f"{done}: {', '.join(ids)}{', ...' * (count > len(ids))}", *changes.skipped]
