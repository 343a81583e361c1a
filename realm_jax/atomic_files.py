"""Files and directories that appear whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator


def write_text(path: str | os.PathLike, content: str) -> None:
  """Writes a UTF-8 text file by renaming a finished temporary one."""
  write_bytes(path, content.encode())


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
  """Writes a file by renaming a finished temporary one beside it."""
  directory, name = os.path.split(os.path.abspath(path))
  handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise


@contextlib.contextmanager
def new_directory(path: str | os.PathLike) -> Iterator[str]:
  """Yields a temporary directory that becomes `path` on a clean exit, replacing what was there."""
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
