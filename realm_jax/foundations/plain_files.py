"""Folders that others made: nothing in them leads out of them, or makes whoever opens it wait."""

import errno
import os
import stat
from typing import IO, Any


def open_plain(path: str | os.PathLike, mode: str = "rb", *, permissions: int = 0o666) -> IO[Any]:
  """Opens a file, but no link, pipe or device.

  Args:
    mode: As of `open`.
    permissions: Those of a new file, less those that the umask takes away.

  Raises:
    ValueError: If it is something else than a file.
  """

  def opener(name: str, flags: int) -> int:
    try:
      opened = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, permissions)
    except OSError as error:
      if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a pipe that nobody reads
        raise _refusal(name) from error
      raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
      os.close(opened)
      raise _refusal(name)
    return opened

  return open(path, mode, opener=opener)


def check_file(path: str | os.PathLike) -> None:
  """Checks that what is there, perhaps through links, is a file and no pipe or device.

  Raises:
    ValueError: If it is something else.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    raise _refusal(os.path.realpath(path))


def check_plain(directory: str | os.PathLike) -> None:
  """Checks that a directory has files and directories alone; it may be a link itself.

  Raises:
    ValueError: If it has something else.
  """
  for entry in os.scandir(directory):
    if entry.is_dir(follow_symlinks=False):
      try:
        check_plain(entry.path)
      except FileNotFoundError:  # a writer has just removed it
        continue
    elif not entry.is_file(follow_symlinks=False):
      raise _refusal(entry.path)


def _refusal(path: str | os.PathLike) -> ValueError:
  what = "a link" if os.path.islink(path) else "no file"
  return ValueError(f"{os.fspath(path)} is {what}, which is not opened; put a file in its place")
