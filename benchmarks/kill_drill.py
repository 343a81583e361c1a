"""Processes that replace a directory, or hold the lock of one, killed a thousand times.

Unlike `failure_drill.py`, which kills whole trainings, the processes do only one thing, so a kill
takes milliseconds. After every kill the directory must be a whole result, as new as the newest that
was seen, and what a user has beside it must be there; the lock must pass to another process, and
never be held by two, also if its file is deleted.

  python benchmarks/kill_drill.py --replacements=600 --locks=400 --leases=20
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

from emulated_gcs import ROOT, EmulatedGcs

from realm_jax.devices import directory_lock
from realm_jax.foundations import atomic_files
from realm_jax.foundations.output_kinds import DirectoryKind

_FILES = 20
_PATIENCE = 60.0  # seconds until something must have happened
_CONTENDERS = 3
_KIND = DirectoryKind(name="a result", files=("part_*", "manifest"), marks=("manifest",))

_JOBS = multiprocessing.get_context("forkserver")  # a copy of one process starts in milliseconds
_JOBS.set_forkserver_preload(
  ["realm_jax.devices.directory_lock", "realm_jax.foundations.atomic_files"]
)


def _replace_for_ever(path: str, number: int, swaps: bool) -> None:
  """Replaces a directory by the next one, whose files all have its number."""
  system = contextlib.nullcontext()
  if not swaps:
    system = mock.patch.object(atomic_files, "_swap", lambda *_: False)
  with system:
    while True:
      number += 1
      with atomic_files.new_directory(path, kind=_KIND) as directory:
        for part in range(_FILES):
          pathlib.Path(directory, f"part_{part}").write_text(str(number))
        pathlib.Path(directory, "manifest").write_text(str(number))


def _hold_for_ever(path: str, journal: str, settings: dict[str, float]) -> None:
  """Waits for the lock of a directory, and writes this process's number while it has it."""
  while True:
    try:
      with (
        directory_lock.hold(path, kind=directory_lock.WORKDIR, **settings) as check,
        open(journal, "ab", buffering=0) as file,
      ):
        while True:
          check()
          file.write(f"{os.getpid()}\n".encode())
          time.sleep(0.001)
    except directory_lock.DirectoryInUseError:
      time.sleep(0.001)


def drill_replacements(root: pathlib.Path, kills: int, draw: random.Random) -> Counter[str]:
  """Kills processes that replace a directory; returns what happened."""
  found: Counter[str] = Counter()
  (root / "thesis.txt").write_text("of years")
  path = root / "result"
  with atomic_files.new_directory(path, kind=_KIND) as directory:
    for name in ("manifest", *(f"part_{part}" for part in range(_FILES))):
      pathlib.Path(directory, name).write_text("0")
  number = 0
  for kill in range(kills):
    swaps = kill % 3 != 2
    arguments = (os.fspath(path), number, swaps)
    process = _JOBS.Process(target=_replace_for_ever, args=arguments, daemon=True)
    process.start()
    when = _MOMENTS[kill % len(_MOMENTS)]
    found[f"killed {when.__doc__}"] += 1
    when(path, draw)
    while swaps and draw.random() < 0.9:  # others read it
      found["looked for while it was replaced"] += 1
      found["not there"] += not (path / "manifest").exists() and not path.exists()
    process.kill()
    process.join()
    if not path.exists() and not swaps:
      found["put back after a kill between two steps"] += 1
      with contextlib.suppress(KeyboardInterrupt), atomic_files.new_directory(path, kind=_KIND):
        raise KeyboardInterrupt
    contents = [file.read_text() for file in path.iterdir()]
    found["damaged"] += len(contents) != _FILES + 1 or len(set(contents)) != 1
    found["older than before"] += int(contents[0]) < number
    found["replaced"] += int(contents[0]) - number
    number = int(contents[0])
    found["files of a user lost"] += not (root / "thesis.txt").exists()
  with atomic_files.new_directory(path, kind=_KIND):
    pass
  left = {entry.name for entry in root.iterdir()} - {"result", "thesis.txt"}
  found["unfinished directories left"] += len(left)
  return found


def _any_time(path: pathlib.Path, draw: random.Random) -> None:
  """at any time"""
  del path
  time.sleep(draw.uniform(0, 0.03))


def _writing(path: pathlib.Path, draw: random.Random) -> None:
  """while writing"""
  del draw
  _await(lambda: any(path.parent.glob(".result.unfinished.*/part_1")))


def _replacing(path: pathlib.Path, draw: random.Random) -> None:
  """while replacing"""
  del draw
  before = path.stat().st_ino

  def replaced() -> bool:
    with contextlib.suppress(FileNotFoundError):
      return path.stat().st_ino != before
    return True

  _await(replaced)


_MOMENTS: tuple[Callable[[pathlib.Path, random.Random], None], ...]
_MOMENTS = (_any_time, _writing, _replacing, _replacing)


def drill_locks(
  root: pathlib.Path,
  directory: str,
  kills: int,
  draw: random.Random,
  *,
  deletes: bool = False,
  **settings: float,
) -> Counter[str]:
  """Kills the holder of a lock again and again; returns what happened.

  Args:
    deletes: Whether every second time the lock's file is deleted before the kill.
  """
  found: Counter[str] = Counter()
  journal = root / "journal"
  journal.touch()
  running = {}

  def start() -> None:
    arguments = (directory, os.fspath(journal), settings)
    process = _JOBS.Process(target=_hold_for_ever, args=arguments, daemon=True)
    process.start()
    running[process.pid] = process

  for _ in range(_CONTENDERS):
    start()
  killed = None
  for kill in range(kills):
    _await_another(killed, journal)
    if deletes and kill % 2:
      pathlib.Path(directory, directory_lock.LOCK_FILE).unlink(missing_ok=True)
      found["lock file deleted"] += 1
    time.sleep(draw.uniform(0, 0.05))  # in which others try to get it
    killed = _last(journal)
    process = running.pop(killed)
    process.kill()
    process.join()
    start()
    found["holder killed"] += 1
  for process in running.values():
    process.kill()
    process.join()
  holders = [row for row, before in _pairs(journal.read_text().split()) if row != before]
  found["holders"] = len(holders)
  found["held by two"] = len(holders) - len(set(holders))
  journal.unlink()
  return found


def _pairs(rows: list[str]) -> Iterator[tuple[str, str | None]]:
  """Yields each row with the one before."""
  return zip(rows, [None, *rows[:-1]], strict=True)


def _last(journal: pathlib.Path) -> int | None:
  rows = journal.read_bytes()[-200:].split(b"\n")
  return int(rows[-2]) if len(rows) > 2 else None


def _await_another(killed: int | None, journal: pathlib.Path) -> None:
  _await(lambda: _last(journal) not in (None, killed))


def _await(condition: Callable[[], bool]) -> None:
  deadline = time.monotonic() + _PATIENCE
  while not condition():
    if time.monotonic() > deadline:
      raise RuntimeError(f"nothing happened for {_PATIENCE:.0f} s")
    time.sleep(0.0002)


_WRONG = (
  *("not there", "damaged", "older than before", "files of a user lost"),
  *("unfinished directories left", "held by two"),
)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--replacements", type=int, default=600, help="kills while replacing")
  parser.add_argument("--locks", type=int, default=400, help="kills while holding a kernel lock")
  parser.add_argument("--leases", type=int, default=20, help="kills while holding a lease")
  parser.add_argument("--seed", type=int, default=0)
  asked = parser.parse_args()
  draw, found = random.Random(asked.seed), {}
  with EmulatedGcs() as store, tempfile.TemporaryDirectory(prefix="realm_kills_") as scratch:
    os.environ.update(store.environment)  # before the process to copy starts
    root = pathlib.Path(scratch)
    started = time.monotonic()
    found["directory replaced"] = drill_replacements(root, asked.replacements, draw)
    found["lock on a disk"] = drill_locks(
      root, os.fspath(root / "run"), asked.locks, draw, deletes=True
    )
    found["lease in an object store"] = drill_locks(
      root, f"{ROOT}/run", asked.leases, draw, renew_seconds=0.2, expiry_seconds=1.5
    )
  for what, counts in found.items():
    print(f"\n| {what} | times |\n|---|---|")
    print("\n".join(f"| {name} | {count:,} |" for name, count in counts.items()))
  print(f"\n{time.monotonic() - started:.0f} seconds", flush=True)
  if any(counts[wrong] for counts in found.values() for wrong in _WRONG):
    sys.exit("something was lost")


if __name__ == "__main__":
  main()
