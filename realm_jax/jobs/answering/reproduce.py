"""Reruns the commands behind a published table, and tells whether its figures are reproduced."""

import dataclasses
import hashlib
import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from realm_jax import atomic_files, object_store

# In the current directory: the commands that have ended well there, a line each.
FINISHED = "runs/reproduced.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
  """A published result.

  Attributes:
    document: Where it is published.
    inputs: SHA-256 of each input file, by path.
    commands: The `realm` commands that make it, in order.
    expected: Minimum and maximum of each figure, by file and by dotted path in it: of JSON, or of
      JSON Lines, where -1 is the last line.
    after: The result whose commands come before these, and whose inputs are needed as well.
  """

  document: str
  commands: Sequence[str]
  expected: Mapping[str, Mapping[str, tuple[float, float]]]
  inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
  after: str | None = None


def reproduce(id: str, *, table: str = "benchmarks/reproductions.toml") -> dict[str, float]:
  """Checks the inputs, runs the commands in the current directory, and compares the figures.

  Commands that have ended well in this directory, for whichever result, are listed in
  `runs/reproduced.txt` and not run again: the same call goes on where it was interrupted. Delete
  the file to begin anew.

  Args:
    id: Name of the result in the table.
    table: TOML file of results, see `benchmarks/reproductions.toml`.

  Returns:
    The figures, by file and path.

  Raises:
    FileNotFoundError: If the table or an input is missing.
    ValueError: If the result is unknown, an input differs, a command fails, or a figure is not
      reproduced.
  """
  published = read_table(table)
  if id not in published:
    raise ValueError(f"{table} has no {id!r}; choose from {', '.join(published)}")
  result, chain = published[id], _chain(published, id)
  for path, digest in {k: v for part in chain for k, v in part.inputs.items()}.items():
    found = hashlib.sha256(object_store.absolute(path).read_bytes()).hexdigest()
    if found != digest:
      raise ValueError(
        f"{path} has SHA-256 {found[:12]}, but {id} was made from {digest[:12]}; get that file"
      )
  for command in (command for part in chain for command in part.commands):
    _run_once(command)
  figures, missed = {}, []
  for file, intervals in result.expected.items():
    content = _read(file)
    for path, (low, high) in intervals.items():
      name = f"{file} {path}"
      try:
        figures[name] = _value(content, path)
      except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{file} has no figure {path}, which {table} names") from error
      inside = low <= figures[name] <= high
      line = f"{name} = {figures[name]:g}, published {low:g} to {high:g}"
      print(f"{'reproduced' if inside else 'NOT reproduced'}: {line}", flush=True)
      missed += [] if inside else [line]
  if missed:
    raise ValueError(f"{id} ({result.document}) is not reproduced: {'; '.join(missed)}")
  return figures


def read_table(path: str) -> dict[str, Reproduction]:
  """Reads a table of results.

  Raises:
    ValueError: If a result comes after one that is missing, or after itself.
  """
  content = tomllib.loads(object_store.absolute(path).read_text())
  published = {name: Reproduction(**fields) for name, fields in content.items()}
  for name in published:
    _chain(published, name)
  return published


def _chain(published: Mapping[str, Reproduction], id: str) -> list[Reproduction]:
  """Returns a result and, before it, those that it comes after."""
  names = [id]
  while (before := published[names[0]].after) is not None:
    if before in names or before not in published:
      raise ValueError(f"{names[0]} comes after {before!r}, which is itself or missing")
    names.insert(0, before)
  return [published[name] for name in names]


def _run_once(command: str) -> None:
  """Runs a command, unless it has ended well in the current directory before."""
  finished = object_store.absolute(FINISHED)
  before = finished.read_text().splitlines() if finished.exists() else []
  if command in before:
    print(f"listed in {FINISHED}, not run again: {command}", flush=True)
    return
  print(f"$ {command}", flush=True)
  _, *arguments = shlex.split(command)
  code = subprocess.run((sys.executable, "-m", "realm_jax.main", *arguments)).returncode
  if code:
    raise ValueError(f"exit status {code}, see above: {command}")
  atomic_files.write_text(FINISHED, "".join(f"{line}\n" for line in (*before, command)))


def _read(file: str) -> Any:
  text = object_store.absolute(file).read_text()
  return list(map(json.loads, text.splitlines())) if file.endswith(".jsonl") else json.loads(text)


def _value(content: Any, name: str) -> float:
  for part in name.split("."):
    content = content[int(part) if isinstance(content, list) else part]
  return float(content)
