"""Atomic writes of files and directories, on a disk or in an object store."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

from realm_jax import object_store


def write_text(path: str | os.PathLike, content: str) -> None:
  """Writes a UTF-8 text file, creating missing parent directories."""
  write_bytes(path, content.encode())


def write_json(path: str | os.PathLike, content: object) -> None:
  """Writes a JSON file for people to read, creating missing parent directories."""
  write_text(path, json.dumps(content, indent=2) + "\n")


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
  """Writes a file by renaming a temporary one; writing an object is atomic by itself."""
  if object_store.is_remote(path):
    object_store.absolute(path).write_bytes(content)
    return
  directory, name = os.path.split(os.path.abspath(path))
  os.makedirs(directory, exist_ok=True)
  handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(content)
      close(file)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise


def close(file: IO) -> None:
  """Flushes a file to disk and closes it."""
  with file:
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def new_directory(path: str | os.PathLike) -> Iterator[str]:
  """Yields a temporary directory that becomes `path` on a clean exit, replacing what was there.

  For an object store the temporary directory is in `$TMPDIR`; see `object_store.upload`.
  """
  if object_store.is_remote(path):
    object_store.absolute(path)  # fails early if a library is missing
    with tempfile.TemporaryDirectory(prefix="realm_upload_") as temporary:
      yield temporary
      object_store.upload(temporary, os.fspath(path))
    return
  parent, name = os.path.split(os.path.abspath(path))
  os.makedirs(parent, exist_ok=True)
  temporary = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
  try:
    yield temporary
    os.chmod(temporary, 0o755)
    if os.path.exists(path):
      replaced = tempfile.mkdtemp(prefix=f".{name}.old.", dir=parent)
      os.rename(path, os.path.join(replaced, name))
      try:
        os.rename(temporary, path)
      except BaseException:
        os.rename(os.path.join(replaced, name), path)
        os.rmdir(replaced)
        raise
      shutil.rmtree(replaced)
    else:
      os.rename(temporary, path)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise
