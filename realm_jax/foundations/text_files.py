"""Text and JSON that others wrote: what is wrong with a file is said with its name."""

import codecs
import json
import os
from typing import Any

from realm_jax.foundations import object_store


def read(path: str | os.PathLike) -> str:
  """Returns a UTF-8 file, with its lines ended by line feeds.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it is not UTF-8, or begins with a byte-order mark.
  """
  content = object_store.absolute(path).read_bytes()
  if content.startswith(codecs.BOM_UTF8):
    raise ValueError(f"{os.fspath(path)} begins with a byte-order mark; save it as UTF-8 without")
  try:
    return content.decode().replace("\r\n", "\n").replace("\r", "\n")
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    raise ValueError(
      f"{os.fspath(path)}, line {line}: byte {content[error.start]:#x} is not UTF-8; save the file "
      "as UTF-8"
    ) from error


def read_json(path: str | os.PathLike, *, kind: type = dict) -> Any:
  """Returns the content of a JSON file, an object unless another kind is given."""
  try:
    content = json.loads(read(path))
  except json.JSONDecodeError as error:
    raise ValueError(f"{os.fspath(path)} is not complete JSON: {error}") from error
  if not isinstance(content, kind):
    raise ValueError(
      f"{os.fspath(path)} holds a JSON {type(content).__name__}, not {kind.__name__}"
    )
  return content
