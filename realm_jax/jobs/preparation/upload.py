"""Copies a finished local directory into an object store, where other jobs find it complete."""

import os

from realm_jax import object_store


def upload(source: str, *, output: str) -> None:
  """Writes `OUTPUT`: every file below a directory, and at last `complete.json`, the list of them.

  Args:
    source: local directory.
    output: directory in an object store, `gs://BUCKET/...`; replaced if it is there.

  Raises:
    FileNotFoundError: if there is no such directory.
    ValueError: if the source lies in an object store, or the output does not.
  """
  object_store.check_local(source=source)
  if not object_store.is_remote(output):
    raise ValueError(f"output={output} is local; name a directory in an object store, gs://...")
  if not os.path.isdir(source):
    raise FileNotFoundError(f"no directory {source}")
  count = object_store.upload(source, output)
  print(f"{output}: {count:,} files", flush=True)
