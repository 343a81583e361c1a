"""Runs one job with many settings, each in its own directory, and tabulates the results."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import scipy.stats

import realm_jax
from realm_jax.foundations import atomic_files, child_processes, object_store, text_files
from realm_jax.launching.supervisor import realm_command, sigterm_interrupts


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkUnit:
  """One run of a sweep.

  Attributes:
    row: Its entry in the list; runs of one row differ only in the grid.
    name: Readable unique name, also of its directory.
    bindings: Gin bindings, with values in gin's syntax.
  """

  row: str
  name: str
  bindings: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """A sweep file.

  Attributes:
    gin_file: Gin file of all runs.
    summary: JSON file of metrics in a run's directory, which marks the run as finished.
    figures: Dotted path in that file, by column title.
  """

  job: str
  gin_file: str
  summary: str
  figures: Mapping[str, str]
  units: Sequence[WorkUnit]


def sweep(*, file: str, workdir: str, parallel: int = 1) -> None:
  """Runs the unfinished work units of a sweep, and writes a table of their metrics.

  The file is TOML: `job`, `gin_file`, `summary`; `[figures]` with title = "path.in.summary";
  `[grid]` with "gin.name" = [values]; `[list.ROW]` with "gin.name" = value. Each row runs at each
  point of the grid. A string that begins with @ or % is a gin reference. An unfinished run is
  started again with the same command; `NAME.json` beside a run has its settings.

  Args:
    file: The sweep file.
    workdir: Directory for the runs and their logs, and for `table.md` and `table.json`: means over
      the grid with 95 % confidence intervals (Student's t).
    parallel: Number of units to run at once.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If the file is not a sweep, or a run in `workdir` has other settings.
    ChildProcessError: If units failed; raised after the others have finished and the table is
      written.
  """
  object_store.check_local(workdir=workdir)
  if parallel < 1:
    raise ValueError(f"parallel={parallel}; give at least 1")
  plan = read_sweep(file)
  os.makedirs(workdir, exist_ok=True)
  settings = {unit.name: _settings(plan, unit) for unit in plan.units}
  for unit in plan.units:
    _check_same_settings(os.path.join(workdir, unit.name), settings[unit.name])
  for name, of_run in settings.items():
    atomic_files.write_json(os.path.join(workdir, f"{name}.json"), of_run)
  waiting = [unit for unit in plan.units if not os.path.exists(_summary(plan, unit, workdir))]
  print(f"{len(plan.units)} runs, {len(plan.units) - len(waiting)} finished before", flush=True)
  failed = []
  with (
    sigterm_interrupts(),
    concurrent.futures.ThreadPoolExecutor(parallel) as pool,
    _Children() as children,
  ):
    runs = {pool.submit(children.run, _command(plan, unit, workdir)): unit for unit in waiting}
    for done in concurrent.futures.as_completed(runs):
      unit, code = runs[done], done.result()
      print(f"{unit.name}: {'finished' if code == 0 else f'exit code {code}'}", flush=True)
      if code != 0:
        failed.append(unit.name)
  rows = tabulate(plan, workdir)
  text = markdown(plan, rows)
  atomic_files.write_json(os.path.join(workdir, "table.json"), rows)
  atomic_files.write_text(os.path.join(workdir, "table.md"), text)
  print(text, flush=True)
  if failed:
    raise ChildProcessError(
      f"{len(failed)} runs failed: {', '.join(sorted(failed))}; see the logs in {workdir}, "
      "and run the same command again"
    )


def read_sweep(file: str) -> Sweep:
  """Reads a sweep file.

  Raises:
    ValueError: If the file is not a sweep; the message names the file and the problem.
  """
  content = text_files.decoded(pathlib.Path(file).read_bytes(), file)
  try:
    entries = tomllib.loads(content)
  except tomllib.TOMLDecodeError as error:
    raise ValueError(f"{file} is not a TOML file: {error}") from error
  known = {"job": str, "gin_file": str, "summary": str, "figures": dict, "grid": dict, "list": dict}
  for name, value in entries.items():
    if not isinstance(value, known.get(name, ())):
      raise ValueError(f"{file}: a sweep has no {name} = {value!r}; use {', '.join(known)}")
  missing = [name for name in ("job", "gin_file", "summary", "figures") if name not in entries]
  if missing:
    raise ValueError(f"{file} lacks {', '.join(missing)}")
  grid = entries.get("grid", {})
  for name, values in grid.items():
    if not isinstance(values, list) or not values:
      raise ValueError(f"{file}: {name} = {values!r} in [grid]; give a list of values")
    if twice := [value for i, value in enumerate(values) if value in values[:i]]:
      raise ValueError(f"{file}: {name} has {twice[0]!r} twice in [grid], and both would count")
  rows = entries.get("list", {"all": {}})
  units = [
    _unit(row, bindings, dict(zip(grid, point, strict=True)))
    for row, bindings in rows.items()
    for point in itertools.product(*grid.values())
  ]
  for number, unit in enumerate(units):
    if unit.name in (".", "..", *(before.name for before in units[:number])):
      raise ValueError(f"{file}: {unit.name} cannot be the directory of row {unit.row}; rename it")
  return Sweep(
    job=entries["job"],
    gin_file=entries["gin_file"],
    summary=entries["summary"],
    figures=entries["figures"],
    units=units,
  )


def tabulate(plan: Sweep, workdir: str) -> dict[str, dict]:
  """Returns `{row: {"runs": n, title: {"mean": m, "half_width": h}}}` of the finished runs.

  The half width of the 95 % interval is None for fewer than two runs.
  """
  rows = {}
  for row in dict.fromkeys(unit.row for unit in plan.units):
    paths = [_summary(plan, unit, workdir) for unit in plan.units if unit.row == row]
    summaries = []
    for path in filter(os.path.exists, paths):
      with open(path, encoding="utf-8") as content:
        summaries.append(json.load(content))
    rows[row] = {"runs": len(summaries)}
    for title, figure in plan.figures.items():
      rows[row][title] = _mean([_look_up(summary, figure) for summary in summaries])
  return rows


def markdown(plan: Sweep, rows: Mapping[str, Mapping]) -> str:
  """Renders the table."""
  titles = list(plan.figures)
  lines = ["| " + " | ".join(["", "runs", *titles]) + " |", "|---|" + "--:|" * (1 + len(titles))]
  for row, cells in rows.items():
    figures = [_cell(cells[title]) for title in titles]
    lines.append("| " + " | ".join([row.replace("_", " "), str(cells["runs"]), *figures]) + " |")
  return "\n".join(lines) + "\n"


class _Children(contextlib.AbstractContextManager["_Children"]):
  """Processes that end with this one."""

  def __init__(self):
    self._running: set[subprocess.Popen] = set()
    self._ended = False

  def __exit__(self, kind, error, trace) -> None:
    self._ended = kind is not None
    for child in list(self._running):
      child.send_signal(signal.SIGTERM)

  def run(self, command_and_log: tuple[Sequence[str], str]) -> int:
    command, log = command_and_log
    if self._ended:
      return -signal.SIGTERM
    with open(log, "ab") as output:
      child = child_processes.start(command, output=output)
      self._running.add(child)
      try:
        return child.wait()
      finally:
        self._running.discard(child)


def _unit(row: str, bindings: Mapping, point: Mapping) -> WorkUnit:
  at = [f"{name.rsplit('.', 1)[-1]}={value}" for name, value in point.items()]
  return WorkUnit(
    row=row,
    name=",".join([row, *at]).replace(os.sep, "_"),
    bindings={name: _gin_value(value) for name, value in {**bindings, **point}.items()},
  )


def _gin_value(value: object) -> str:
  return value if isinstance(value, str) and value[:1] in ("@", "%") else repr(value)


def _command(plan: Sweep, unit: WorkUnit, workdir: str) -> tuple[Sequence[str], str]:
  directory = os.path.join(workdir, unit.name)
  command = realm_command(plan.job, gin_file=plan.gin_file, keywords={"workdir": directory})
  command += [f"--gin.{name}={value}" for name, value in unit.bindings.items()]
  return command, f"{directory}.log"


def _settings(plan: Sweep, unit: WorkUnit) -> dict[str, str]:
  """Returns what decides a run: its bindings, and the texts of its gin files."""
  return {"job": plan.job, **_gin_texts(plan.gin_file), **unit.bindings}


def _gin_texts(file: str) -> dict[str, str]:
  """Returns the text of a gin file and of those that it includes, by name."""
  # Like gin, which looks in the package, too.
  package = pathlib.Path(realm_jax.__file__).parent
  path = pathlib.Path(file) if os.path.exists(file) else package / file
  text = path.read_text(encoding="utf-8") if path.exists() else ""
  included = re.findall(r"""^include ["'](.+)["']""", text, re.MULTILINE)
  return {file: text, **{n: t for name in included for n, t in _gin_texts(name).items()}}


def _check_same_settings(directory: str, now: Mapping[str, str]) -> None:
  """Checks that a run that has begun has these settings."""
  if not os.path.exists(directory):
    return
  before = {}
  with contextlib.suppress(FileNotFoundError):
    before = text_files.read_json(f"{directory}.json")
  names = sorted(before.keys() | now.keys())
  if different := [name for name in names if before.get(name) != now.get(name)]:
    raise ValueError(
      f"{directory} has a run with other settings ({', '.join(different)}); give another "
      f"--workdir, or delete it to run again"
    )


def _summary(plan: Sweep, unit: WorkUnit, workdir: str) -> str:
  return os.path.join(workdir, unit.name, plan.summary)


def _look_up(summary: Mapping, figure: str) -> float:
  value: Any = summary
  for name in figure.split("."):
    if not isinstance(value, Mapping) or name not in value:
      raise ValueError(f"the summary has no metric {figure}; it has {', '.join(sorted(summary))}")
    value = value[name]
  return float(value)


def _mean(values: Sequence[float]) -> dict[str, float | None]:
  if not values:
    return {"mean": None, "half_width": None}
  half_width = None
  if len(values) > 1:
    half_width = float(scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1))
  return {"mean": statistics.fmean(values), "half_width": half_width}


def _cell(figure: Mapping[str, float | None]) -> str:
  if figure["mean"] is None:
    return "–"
  interval = "" if figure["half_width"] is None else f" ± {figure['half_width']:.3g}"
  return f"{figure['mean']:.3f}{interval}"
