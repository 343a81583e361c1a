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

from realm_jax import object_store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
  """A published result.

  Attributes:
    document: Where it is published.
    inputs: SHA-256 of each input file, by path.
    commands: The `realm` commands that make it, in order.
    figures: JSON file that the last command writes.
    expected: Minimum and maximum of each figure, by its dotted path in that file.
  """

  document: str
  inputs: Mapping[str, str]
  commands: Sequence[str]
  figures: str
  expected: Mapping[str, tuple[float, float]]


def reproduce(id: str, *, table: str = "benchmarks/reproductions.toml") -> dict[str, float]:
  """Checks the inputs, runs the commands in the current directory, and compares the figures.

  Args:
    id: Name of the result in the table.
    table: TOML file of results, see `benchmarks/reproductions.toml`.

  Raises:
    FileNotFoundError: If the table or an input is missing.
    ValueError: If the result is unknown, an input differs, or a figure is not reproduced.
    CalledProcessError: If a command fails.
  """
  published = read_table(table)
  if id not in published:
    raise ValueError(f"{table} has no {id!r}; choose from {', '.join(published)}")
  result = published[id]
  for path, digest in result.inputs.items():
    found = hashlib.sha256(object_store.absolute(path).read_bytes()).hexdigest()
    if found != digest:
      raise ValueError(
        f"{path} has SHA-256 {found[:12]}, but {id} was made from {digest[:12]}; get that file"
      )
  for command in result.commands:
    print(f"$ {command}", flush=True)
    _, *arguments = shlex.split(command)
    subprocess.run((sys.executable, "-m", "realm_jax.main", *arguments), check=True)
  content = json.loads(object_store.absolute(result.figures).read_text())
  figures = {name: _value(content, name) for name in result.expected}
  missed = []
  for name, (low, high) in result.expected.items():
    inside = low <= figures[name] <= high
    line = f"{name} = {figures[name]:g}, published {low:g} to {high:g}"
    print(f"{'reproduced' if inside else 'NOT reproduced'}: {line}", flush=True)
    missed += [] if inside else [line]
  if missed:
    raise ValueError(f"{id} ({result.document}) is not reproduced: {'; '.join(missed)}")
  return figures


def read_table(path: str) -> dict[str, Reproduction]:
  """Reads a table of results."""
  content = tomllib.loads(object_store.absolute(path).read_text())
  return {name: Reproduction(**fields) for name, fields in content.items()}


def _value(content: Any, name: str) -> float:
  for part in name.split("."):
    content = content[int(part) if isinstance(content, list) else part]
  return float(content)
