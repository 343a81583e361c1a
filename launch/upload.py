"""Copies a finished local directory to an object store, where other jobs can read it."""

import glob
import os
import pathlib

from realm_jax.foundations import object_store
from realm_jax.foundations.output_kinds import DirectoryKind


def upload(source: str, *, output: str) -> None:
  """Writes `output`: every file in a directory and, last, their list `complete.json`.

  Args:
    source: Local directory.
    output: Directory in an object store, `gs://BUCKET/...`; replaces an earlier copy.

  Raises:
    FileNotFoundError: If the directory is missing.
    ValueError: If the source is in an object store, or the output is not, or has other files.
  """
  object_store.check_local(source=source)
  if not object_store.is_remote(output):
    raise ValueError(f"output={output} is local; use a directory in an object store, gs://...")
  if not os.path.isdir(source):
    raise FileNotFoundError(f"no directory {source}")
  names = {
    file.relative_to(source).as_posix()
    for file in pathlib.Path(source).rglob("*")
    if file.is_file()
  }
  before = {*object_store.listed(output)}
  # An earlier copy of a directory that has changed shares some names, such as that of a manifest.
  files = tuple(map(glob.escape, names | before if names & before else names))
  kind = DirectoryKind(name=f"a copy of {source}", files=files)
  kind.check(output)
  count = object_store.upload(source, output)
  print(f"{output}: {count:,} files", flush=True)
