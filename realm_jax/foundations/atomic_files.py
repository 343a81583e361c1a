"""Atomic writes of files and directories, on a disk or in an object store."""

import contextlib
import ctypes
import errno
import glob
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

from realm_jax.foundations import object_store, system
from realm_jax.foundations.output_kinds import UNFINISHED, DirectoryKind, FileKind


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
    system.lock(descriptor, wait=False)
    yield
  finally:
    os.close(descriptor)


_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)


def write_text(path: str | os.PathLike, content: str, *, kind: FileKind | None = None) -> None:
  """Writes a UTF-8 text file, creating missing parent directories.

  Raises:
    ValueError: If there is a file of another kind, which stays as it is.
  """
  if kind is not None:
    kind.check(path)
  write_bytes(path, content.encode())


def write_json(path: str | os.PathLike, content: object) -> None:
  """Writes a JSON file for people to read, creating missing parent directories."""
  write_text(path, json.dumps(content, indent=2) + "\n")


def write_bytes(path: str | os.PathLike, content: bytes | memoryview, *, mode: int = 0o666) -> None:
  """Writes a file by renaming a temporary one; writing an object is atomic by itself.

  Args:
    mode: Permissions of the file, less those that the umask takes away.
  """
  if object_store.is_remote(path):
    with object_store.absolute(path).open("wb") as file:
      file.write(content)
    return
  directory, name = os.path.split(os.path.abspath(path))
  os.makedirs(directory, exist_ok=True)
  temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}")
  handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(content)
      close(file)
    os.replace(temporary, path)
    sync_directory(directory)
  except BaseException:
    os.unlink(temporary)
    raise


def remove_unfinished(path: str | os.PathLike) -> None:
  """Removes what killed processes have left of a file; only for who holds a lock."""
  directory, name = os.path.split(os.path.abspath(path))
  for left in glob.glob(os.path.join(glob.escape(directory), f".{glob.escape(name)}.*")):
    os.unlink(left)


def close(file: IO) -> None:
  """Flushes a file to disk and closes it."""
  with file:
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: str) -> None:
  """Flushes the names in a directory to disk, without which a power failure loses new files."""
  handle = os.open(path, os.O_RDONLY)
  try:
    with contextlib.suppress(OSError):  # some network file systems cannot
      os.fsync(handle)
  finally:
    os.close(handle)


@contextlib.contextmanager
def new_directory(path: str | os.PathLike, *, kind: DirectoryKind) -> Iterator[str]:
  """Yields a temporary directory that becomes `path` on a clean exit.

  It replaces an empty directory or one of the same kind, at once where the system can swap two
  directories; elsewhere a kill may leave the old one in `.NAME.replaced`, which the next job puts
  back. What killed jobs left unfinished next to it is removed. For an object store the temporary
  directory is in `$TMPDIR`; see `object_store.upload`.

  Raises:
    ValueError: At the beginning or the end, if `path` has anything else; it stays as it is.
  """
  if object_store.is_remote(path):
    object_store.absolute(path)  # fails early if a library is missing
    kind.check(path)
    with tempfile.TemporaryDirectory(prefix="realm_upload_") as temporary:
      yield temporary
      kind.check(path)
      object_store.upload(temporary, os.fspath(path))
    return
  path = os.path.realpath(path)
  _recover(path)
  kind.check(path)
  with _unfinished(path) as temporary:
    yield temporary
    kind.check(path)
    try:
      os.rename(temporary, path)  # of a directory, it succeeds if there is none or an empty one
    except OSError as error:
      if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
        raise
      if not _swap(temporary, path):
        _replace(temporary, path)
    sync_directory(os.path.dirname(path))


@contextlib.contextmanager
def _unfinished(path: str) -> Iterator[str]:
  """Yields a new directory next to `path`, locked while this process lives, and removes it."""
  parent, name = os.path.split(path)
  os.makedirs(parent, exist_ok=True)
  prefix = f".{name}{UNFINISHED}"
  for abandoned in glob.glob(os.path.join(glob.escape(parent), f"{glob.escape(prefix)}*")):
    # Neither that of a living job nor, where directories cannot be locked, any other.
    with contextlib.suppress(OSError), locked(abandoned):
      shutil.rmtree(abandoned)
  temporary = os.path.join(parent, f"{prefix}{secrets.token_hex(4)}")
  os.mkdir(temporary)
  with contextlib.ExitStack() as stack:
    stack.callback(shutil.rmtree, temporary, ignore_errors=True)
    with contextlib.suppress(OSError):
      stack.enter_context(locked(temporary))
    yield temporary


def _swap(first: str, second: str) -> bool:
  """Swaps two directories at once; returns whether the system can."""
  exchange = getattr(ctypes.CDLL(None), "renameat2", None)  # Python has no name for it
  paths = (_HERE, os.fsencode(first), _HERE, os.fsencode(second))
  return exchange is not None and exchange(*paths, _EXCHANGE) == 0


def _replace(temporary: str, path: str) -> None:
  """Replaces a directory in two steps; what is in `temporary` then is the old one."""
  aside = _aside(path)
  os.rename(path, aside)
  try:
    os.rename(temporary, path)
  except BaseException:
    os.rename(aside, path)
    raise
  os.rename(aside, temporary)


def _aside(path: str) -> str:
  parent, name = os.path.split(path)
  return os.path.join(parent, f".{name}.replaced")


def _recover(path: str) -> None:
  """Puts back the directory that a kill between the two steps has left aside."""
  aside = _aside(path)
  if os.path.exists(aside):
    if os.path.exists(path):
      shutil.rmtree(aside)
    else:
      os.rename(aside, path)
