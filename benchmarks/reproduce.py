"""Reruns the commands behind a published table, and tells whether its figures are reproduced.

  python benchmarks/reproduce.py cranfield_bm25

checks the inputs, runs the commands in the current directory, and compares the figures with
`benchmarks/reproductions.toml`. Commands that have ended well in this directory, for whichever
result, are listed in `runs/reproduced.txt` and not run again: the same call goes on where it was
interrupted. Delete the file to begin anew.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

TABLE = pathlib.Path(__file__).resolve().parent / "reproductions.toml"
FINISHED = pathlib.Path("runs/reproduced.txt")


class NotReproducedError(ValueError):
  """Says in one line what is missing, or what differs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
  """A published result.

  Attributes:
    document: Where it is published.
    commands: The `realm` commands that make it, in order.
    expected: Minimum and maximum of each figure, by file and by dotted path in it: of JSON, or of
      JSON Lines, where -1 is the last line.
    after: The result whose commands come before these.
  """

  document: str
  commands: Sequence[str]
  expected: Mapping[str, Mapping[str, tuple[float, float]]] = dataclasses.field(
    default_factory=dict
  )
  after: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
  """The published results by name, and the SHA-256 of input files by path."""

  results: Mapping[str, Reproduction]
  files: Mapping[str, str]

  def chain(self, name: str) -> list[Reproduction]:
    """Returns a result and, before it, those that it comes after."""
    names = [name]
    while (before := self.results[names[0]].after) is not None:
      if before in names or before not in self.results:
        raise NotReproducedError(f"{names[0]} comes after {before!r}, which is itself or missing")
      names.insert(0, before)
    return [self.results[name] for name in names]


def read_table(path: pathlib.Path = TABLE) -> Table:
  """Reads a table of results; replaces words in braces, and steps by their commands."""
  content = tomllib.loads(path.read_text("utf-8"))
  words, steps = content.pop("words", {}), content.pop("steps", {})
  files = content.pop("files", {})

  def commands(line: str | Mapping) -> list[str]:
    if isinstance(line, str):
      return [line.format(**words)]
    given = {name: value for name, value in line.items() if name != "do"}
    return [command.format(**words, **given) for command in steps[line["do"]]]

  results = {
    name: Reproduction(**{**fields, "commands": sum(map(commands, fields["commands"]), [])})
    for name, fields in content.items()
  }
  table = Table(results=results, files=files)
  for name in results:
    table.chain(name)
  return table


def reproduce(name: str, table: Table) -> dict[str, float]:
  """Returns the figures of a result, by file and path.

  Raises:
    NotReproducedError: If the result is unknown, an input differs, a command fails, or a figure is
      not reproduced.
  """
  if name not in table.results:
    raise NotReproducedError(f"no result {name!r}; choose from {', '.join(table.results)}")
  result = table.results[name]
  commands = [command for part in table.chain(name) for command in part.commands]
  for path, digest in table.files.items():
    if any(path in command for command in commands):
      found = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
      if found != digest:
        raise NotReproducedError(
          f"{path} has SHA-256 {found[:12]}, but {name} was made from {digest[:12]}; get that file"
        )
  for command in commands:
    _run_once(command)
  figures, missed = {}, []
  for file, intervals in result.expected.items():
    content = _read(file)
    for path, (low, high) in intervals.items():
      figure = f"{file} {path}"
      figures[figure] = _value(content, path)
      inside = low <= figures[figure] <= high
      line = f"{figure} = {figures[figure]:g}, published {low:g} to {high:g}"
      print(f"{'reproduced' if inside else 'NOT reproduced'}: {line}", flush=True)
      missed += [] if inside else [line]
  if missed:
    raise NotReproducedError(f"{name} ({result.document}) is not reproduced: {'; '.join(missed)}")
  return figures


def _run_once(command: str) -> None:
  """Runs a command, unless it has ended well in the current directory before."""
  before = FINISHED.read_text("utf-8").splitlines() if FINISHED.exists() else []
  if command in before:
    print(f"listed in {FINISHED}, not run again: {command}", flush=True)
    return
  print(f"$ {command}", flush=True)
  _, job, *arguments = shlex.split(command)
  if job.endswith(".py"):
    job = str(TABLE.parents[1] / job)
  code = subprocess.run((sys.executable, "-m", "realm_jax.main", job, *arguments)).returncode
  if code:
    raise NotReproducedError(f"exit status {code}, see above: {command}")
  FINISHED.parent.mkdir(exist_ok=True)
  with FINISHED.open("a", encoding="utf-8") as file:
    file.write(f"{command}\n")


def _read(file: str) -> Any:
  text = pathlib.Path(file).read_text("utf-8")
  return list(map(json.loads, text.splitlines())) if file.endswith(".jsonl") else json.loads(text)


def _value(content: Any, name: str) -> float:
  for part in name.split("."):
    content = content[int(part) if isinstance(content, list) else part]
  return float(content)


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("result")
  try:
    reproduce(parser.parse_args().result, read_table())
  except (NotReproducedError, OSError) as error:
    print(f"reproduce: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
