"""Copies a finished local directory to an object store, where other jobs can read it."""

import os

from realm_jax import object_store


def upload(source: str, *, output: str) -> None:
  """Writes `output`: every file in a directory and, last, their list `complete.json`.

  Args:
    source: Local directory.
    output: Directory in an object store, `gs://BUCKET/...`; replaced if it exists.

  Raises:
    FileNotFoundError: If the directory is missing.
    ValueError: If the source is in an object store, or the output is not.
  """
  object_store.check_local(source=source)
  if not object_store.is_remote(output):
    raise ValueError(f"output={output} is local; use a directory in an object store, gs://...")
  if not os.path.isdir(source):
    raise FileNotFoundError(f"no directory {source}")
  count = object_store.upload(source, output)
  print(f"{output}: {count:,} files", flush=True)
