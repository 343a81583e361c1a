"""Locks on files and directories that the kernel releases when their process ends."""

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
  """Holds the only lock on an existing file or directory.

  The lock is on what is there, not on its name: a directory that is renamed stays locked.

  Raises:
    BlockingIOError: If another holds it.
    OSError: If the file system has no locks on such files; NFS has none on directories.
  """
  descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
  finally:
    os.close(descriptor)
