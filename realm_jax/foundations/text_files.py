"""Text and JSON that others wrote: what is wrong with a file is said with its name."""

import codecs
import gzip
import json
import os
import zlib
from typing import Any

from realm_jax.foundations import object_store


def decoded(content: bytes, path: str | os.PathLike) -> str:
  """Returns the text of a file: UTF-8, or UTF-16 with its mark; `.gz` is compressed."""
  path = os.fspath(path)
  if path.endswith(".gz"):
    try:
      content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
      raise ValueError(f"{path} is truncated or damaged; download it again") from error
  is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
  try:
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    raise ValueError(
      f"{path}, line {line} is not UTF-8 (byte {content[error.start]:#x}); convert the file"
    ) from error


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a file; other characters that Python ends lines at are text."""
  text = decoded(object_store.absolute(path).read_bytes(), path)
  return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def read_json(path: str | os.PathLike, *, kind: type = dict) -> Any:
  """Returns the content of a JSON file, an object unless another kind is given."""
  try:
    content = json.loads(decoded(object_store.absolute(path).read_bytes(), path))
  except json.JSONDecodeError as error:
    raise ValueError(f"{os.fspath(path)} is not complete JSON: {error}") from error
  if not isinstance(content, kind):
    raise ValueError(
      f"{os.fspath(path)} holds a JSON {type(content).__name__}, not {kind.__name__}"
    )
  return content
