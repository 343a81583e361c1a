"""Text and JSON that others wrote: what is wrong with a file is said with its name."""

import codecs
import gzip
import json
import os
import zlib
from typing import Any

from absl import logging

from realm_jax.foundations import object_store, plain_files


def decoded(content: bytes, path: str | os.PathLike) -> str:
  """Returns the text of a file: UTF-8, or UTF-16 with its mark; `.gz` is compressed."""
  path = os.fspath(path)
  if path.endswith(".gz"):
    try:
      content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
      raise ValueError(f"{path} is truncated or damaged; download it again") from error
  is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
  encoding = "utf-16" if is_utf16 else "utf-8-sig"
  try:
    return content.decode(encoding)
  except UnicodeDecodeError as error:
    before, byte = error.object[: error.start], error.object[error.start]  # may lack the mark
    line = before.decode(encoding, "ignore").count("\n") + 1
    name = "UTF-16" if is_utf16 else "UTF-8"
    raise ValueError(
      f"{path}, line {line} is not {name} (byte {byte:#x}); convert the file"
    ) from error


def read_lines(path: str | os.PathLike) -> list[str]:
  """Returns the lines of a file; other characters that Python ends lines at are text."""
  text = decoded(object_store.absolute(path).read_bytes(), path)
  return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def read_log(path: str | os.PathLike) -> list[dict]:
  """Returns the rows of a log, JSON lines with a `step`; empty if there is none.

  Lines that a kill or a power failure has damaged are left out, with a warning.
  """
  file = object_store.absolute(path)
  rows, num_damaged = [], 0
  for line in file.read_bytes().split(b"\n") if file.exists() else ():
    if not (line := line.strip(b"\0\r ")):
      continue
    try:
      row = parse_json(line.decode())
    except ValueError:
      row = None
    if isinstance(row, dict) and type(row.get("step")) is int:
      rows.append(row)
    else:
      num_damaged += 1
  if num_damaged:
    logging.warning("%s: damaged lines left out: %d", os.fspath(path), num_damaged)
  return rows


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Returns an object of JSON; an error says which name it has twice."""
  found = dict(pairs)
  if len(found) < len(pairs):
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f"an object has {twice!r:.60} twice")
  return found


DECODER = json.JSONDecoder(object_pairs_hook=once)  # of objects that have a name once


def json_error(error: Exception) -> str:
  """Returns what is wrong with JSON, which may be valid, but too much."""
  if isinstance(error, RecursionError):
    return "it is nested too deep"
  if str(error).startswith("Exceeds the limit"):
    return "a number of more than 4,300 digits; write it as a string"
  return str(error)


def parse_json(content: str | bytes) -> Any:
  """Returns what JSON holds.

  Raises:
    ValueError: If it is no JSON, an object has a name twice, or it is nested too deep.
  """
  try:
    return DECODER.decode(content if isinstance(content, str) else content.decode("utf-8-sig"))
  except (json.JSONDecodeError, UnicodeDecodeError):
    raise
  except (ValueError, RecursionError) as error:
    raise ValueError(json_error(error)) from error


def read_json(path: str | os.PathLike, *, kind: type = dict) -> Any:
  """Returns the content of a JSON file, an object unless another kind is given."""
  plain_files.check_file(path)
  text = decoded(object_store.absolute(path).read_bytes(), path)
  try:
    content = parse_json(text)
  except ValueError as error:
    raise ValueError(f"{os.fspath(path)} is not complete JSON: {error}") from error
  if not isinstance(content, kind):
    raise ValueError(
      f"{os.fspath(path)} holds a JSON {type(content).__name__}, not {kind.__name__}"
    )
  return content
