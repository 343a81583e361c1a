"""Trainings, directories, locks and knowledge bases that everything happens to: is anything lost?

Processes are killed again and again (SIGKILL) and started anew, as a cluster would.

  training        a trainer and its index builder; see `training_drill.py`
  replacements    a process replaces a directory: it must be a whole result, as new as the newest
                  that was seen, and what a user has beside it must be there
  locks           three want the lock of a directory, or a lease in an (emulated) object store: it
                  must pass to another, and never be held by two, also if its file is deleted
  knowledge_base  a writer replaces and deletes documents and merges segments, while another process
                  searches: all that is found must be of one state, the last reported or the next

Processes start as copies of one that has imported what they need, so a kill takes milliseconds. A
row of what is found that begins with "wrong" must be 0.

  python benchmarks/failure_drill.py --kills=1000 --output=failure_drill.json
  python benchmarks/failure_drill.py --store=gcs --output=failure_drill_gcs.json
  python benchmarks/failure_drill.py replacements --kills=600
  python benchmarks/failure_drill.py locks --kills=400
  python benchmarks/failure_drill.py locks --store=gcs --kills=20
  python benchmarks/failure_drill.py knowledge_base --kills=200
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import measuring

from realm_jax.devices import directory_lock
from realm_jax.foundations import atomic_files
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

sys.path.append(os.fspath(pathlib.Path(__file__).parents[1]))  # for tests/emulated_gcs.py
_FILES = 20
_PATIENCE = 60.0  # seconds until something must have happened
_CONTENDERS = 3
_KIND = DirectoryKind(name="a result", files=("part_*", "manifest"), marks=("manifest",))
_DOCUMENTS, _COMMON = 40, "common"  # a word of all documents
_LEASE = {"renew_seconds": 0.2, "expiry_seconds": 1.5}
_JOBS = multiprocessing.get_context("forkserver")


def start(target: Callable, *arguments: object) -> multiprocessing.Process:
  process = _JOBS.Process(target=target, args=arguments, daemon=True)
  process.start()
  return process


def end(process: multiprocessing.Process) -> None:
  process.kill()
  process.join()


def wait_for(condition: Callable[[], bool]) -> None:
  deadline = time.monotonic() + _PATIENCE
  while not condition():
    if time.monotonic() > deadline:
      raise RuntimeError(f"nothing happened for {_PATIENCE:.0f} s")
    time.sleep(0.0002)


def last(journal: pathlib.Path, default: int = 0) -> int:
  """Returns the number in the last whole line of a file."""
  rows = journal.read_bytes()[-200:].split(b"\n")
  return int(rows[-2]) if len(rows) > 1 else default


def append(journal: pathlib.Path, number: int) -> None:
  with open(journal, "ab", buffering=0) as file:
    file.write(f"{number}\n".encode())


def _replace(path: pathlib.Path, number: int) -> None:
  """Replaces a directory by one whose files all have this number."""
  with atomic_files.new_directory(path, kind=_KIND) as directory:
    for name in (*(f"part_{part}" for part in range(_FILES)), "manifest"):
      pathlib.Path(directory, name).write_text(str(number))


def replace_for_ever(path: pathlib.Path, number: int, swaps: bool) -> None:
  system = contextlib.nullcontext()
  if not swaps:
    system = mock.patch.object(atomic_files, "_swap", lambda *_: False)
  with system:
    while True:
      _replace(path, number := number + 1)


def drill_replacements(
  root: pathlib.Path, *, kills: int, draw: random.Random, **_: object
) -> Counter[str]:
  """Kills processes that replace a directory, every third on a system that cannot swap two."""
  found: Counter[str] = Counter()
  (root / "thesis.txt").write_text("of years")
  path, number = root / "result", 0
  _replace(path, number)
  for kill in range(kills):
    swaps = kill % 3 != 2
    process = start(replace_for_ever, path, number, swaps)
    moment, wait = _MOMENTS[kill % len(_MOMENTS)]
    found[f"killed {moment}"] += 1
    wait(path, draw)
    while swaps and draw.random() < 0.9:  # others read it
      found["looked for while it was replaced"] += 1
      found["wrong: not there"] += not (path / "manifest").exists() and not path.exists()
    end(process)
    if not path.exists() and not swaps:
      found["put back after a kill between two steps"] += 1
      with contextlib.suppress(KeyboardInterrupt), atomic_files.new_directory(path, kind=_KIND):
        raise KeyboardInterrupt
    contents = [file.read_text() for file in path.iterdir()]
    found["wrong: damaged"] += len(contents) != _FILES + 1 or len(set(contents)) != 1
    found["wrong: older than before"] += int(contents[0]) < number
    found["replaced"] += int(contents[0]) - number
    number = int(contents[0])
    found["wrong: files of a user lost"] += not (root / "thesis.txt").exists()
  _replace(path, number)
  left = {entry.name for entry in root.iterdir()} - {"result", "thesis.txt"}
  found["wrong: unfinished left"] = len(left)
  return found


def _any_time(path: pathlib.Path, draw: random.Random) -> None:
  del path
  time.sleep(draw.uniform(0, 0.03))


def _writing(path: pathlib.Path, draw: random.Random) -> None:
  del draw
  wait_for(lambda: any(path.parent.glob(".result.unfinished.*/part_1")))


def _replacing(path: pathlib.Path, draw: random.Random) -> None:
  del draw
  before = path.stat().st_ino

  def replaced() -> bool:
    with contextlib.suppress(FileNotFoundError):
      return path.stat().st_ino != before
    return True

  wait_for(replaced)


_MOMENTS = (
  *(("at any time", _any_time), ("while writing", _writing)),
  *(("while replacing", _replacing), ("while replacing", _replacing)),
)


def hold_for_ever(path: str, journal: pathlib.Path, settings: dict[str, float]) -> None:
  """Waits for the lock of a directory, and writes this process's number while it has it."""
  while True:
    with (
      contextlib.suppress(directory_lock.DirectoryInUseError),
      directory_lock.hold(path, kind=directory_lock.WORKDIR, **settings) as check,
    ):
      while True:
        check()
        append(journal, os.getpid())
        time.sleep(0.001)
    time.sleep(0.001)


def drill_locks(root: pathlib.Path, *, kills: int, draw: random.Random, store: Any) -> Counter[str]:
  """Kills the holder of a lock; on a disk, every second time its file is deleted before."""
  found: Counter[str] = Counter()
  journal = root / "journal"
  journal.touch()
  directory = f"{store.root}/run" if store else os.fspath(root / "run")
  arguments = (directory, journal, _LEASE if store else {})
  running = [start(hold_for_ever, *arguments) for _ in range(_CONTENDERS)]
  killed = 0
  for kill in range(kills):
    wait_for(lambda: last(journal) not in (0, killed))  # noqa: B023
    if not store and kill % 2:
      pathlib.Path(directory, directory_lock.LOCK_FILE).unlink(missing_ok=True)
      found["lock file deleted"] += 1
    time.sleep(draw.uniform(0, 0.05))  # in which others try to get it
    killed = last(journal)
    (holder,) = (process for process in running if process.pid == killed)
    end(holder)
    running = [*(process for process in running if process is not holder)]
    running.append(start(hold_for_ever, *arguments))
    found["holder killed"] += 1
  for process in running:
    end(process)
  rows = journal.read_text().split()
  holders = [row for row, before in zip(rows, [None, *rows], strict=False) if row != before]
  found["holders"] = len(holders)
  found["wrong: held by two"] = len(holders) - len(set(holders))
  return found


def contents(state: int) -> dict[str, str]:
  """Returns the documents of a state: written, then fewer, then the same."""
  draw = random.Random(state // 3)
  ids = draw.sample(range(_DOCUMENTS), draw.randint(_DOCUMENTS // 2, _DOCUMENTS))
  texts = {f"d{id}": f"The {_COMMON} text of {state // 3 if id % 2 else 'all'}." for id in ids}
  gone = [] if state % 3 == 0 else [*texts][: len(texts) // 3]
  return {id: text for id, text in texts.items() if id not in gone}


def records(state: int) -> list[dict[str, str]]:
  return [{"id": id, "text": text} for id, text in contents(state).items()]


def read(base: KnowledgeBase) -> dict[str, str]:
  """Returns the documents that a search for the common word finds."""
  return {hit.id: hit.text for hit in base.search(_COMMON, k=1000)}


def write_for_ever(path: str, journal: pathlib.Path, state: int) -> None:
  """Takes a knowledge base from state to state, and reports each in a file."""
  base = KnowledgeBase(path)
  while True:
    if state % 3 == 2:
      base.sync(records(state + 1))
    elif state % 3 == 0:
      base.delete(contents(state).keys() - contents(state + 1).keys())
    else:
      base.compact()
    append(journal, state := state + 1)


def read_for_ever(path: str, journal: pathlib.Path, found: str) -> None:
  """Searches, and writes how many searches found what no state has, and how many there were."""
  base = KnowledgeBase(path)
  searches = mixed = 0
  while True:
    before = last(journal)
    documents = read(base)
    states = [contents(state) for state in range(before, last(journal) + 2)]
    searches, mixed = searches + 1, mixed + (documents not in states)
    pathlib.Path(f"{found}.new").write_text(f"{searches} {mixed}")
    os.replace(f"{found}.new", found)


def drill_knowledge_base(
  root: pathlib.Path, *, kills: int, draw: random.Random, **_: object
) -> Counter[str]:
  """Kills a writer."""
  path, journal, searched = os.fspath(root / "kb"), root / "journal", os.fspath(root / "searched")
  KnowledgeBase.create(path, records(0), language="en")
  journal.touch()
  reader = start(read_for_ever, path, journal, searched)
  found: Counter[str] = Counter()
  state = 0
  for _kill in range(kills):
    writer = start(write_for_ever, path, journal, state)
    wait_for(lambda: last(journal) != state)  # noqa: B023
    time.sleep(draw.uniform(0, 0.1))
    end(writer)
    reported = last(journal)
    documents = read(KnowledgeBase(path))
    found["killed"] += 1
    found["changes"] += reported - state
    states = [s for s in (reported, reported + 1) if documents == contents(s)]
    found["wrong: in no state"] += not states
    state = states[0] if states else state
    found["change committed, killed before it was reported"] += state > reported
    # Compaction changes no document, so the state before it and the one after look the same.
    append(journal, state)
  end(reader)
  searches, mixed = map(int, pathlib.Path(searched).read_text().split())
  found.update({"searches": searches, "wrong: searches that found a mixture": mixed})
  base = KnowledgeBase(path)
  for id in ("last", "end"):
    base.add([{"id": id, "text": f"The {id}."}])
  commits = (json.loads(file.read_text()) for file in pathlib.Path(path, "commits").iterdir())
  named = {segment["name"] for commit in commits for segment in commit["segments"]}
  found["wrong: files left"] = len({*os.listdir(os.path.join(path, "segments"))} - named)
  return found


_DRILLS = {
  "replacements": drill_replacements,
  "locks": drill_locks,
  "knowledge_base": drill_knowledge_base,
}


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  names = ["training", *_DRILLS]
  parser.add_argument("drill", nargs="?", choices=names, default="training", metavar="DRILL")
  parser.add_argument("--store", choices=["disk", "gcs"], default="disk")
  parser.add_argument("--kills", type=int, default=20, help="of all runs")
  parser.add_argument("--seed", type=int, default=0, help="of the first run")
  training = parser.add_argument_group("training")
  training.add_argument("--kills_per_run", type=int, default=10)
  training.add_argument("--damages", type=int, default=1, help="of each kind in a run")
  training.add_argument("--num_steps", type=int, default=200, help="of a run")
  training.add_argument("--output", help="JSON Lines of the runs, which are not repeated")
  arguments = parser.parse_args()
  if arguments.store == "gcs" and arguments.drill in ("replacements", "knowledge_base"):
    parser.error(f"{arguments.drill} drills the disk; omit --store=gcs")
  return arguments


def main() -> None:
  arguments = _parse()
  started = time.monotonic()
  with contextlib.ExitStack() as stack:
    store = None
    if arguments.store == "gcs":
      from tests.emulated_gcs import EmulatedGcs

      store = stack.enter_context(EmulatedGcs())
      os.environ.update(store.environment)  # before the process to copy starts
    if arguments.drill == "training":
      import training_drill

      found = training_drill.drill(arguments, store)
    else:
      _JOBS.set_forkserver_preload(
        ["realm_jax.devices.directory_lock", "realm_jax.knowledge_base.knowledge_base"]
      )
      root = stack.enter_context(tempfile.TemporaryDirectory(prefix="realm_drill_"))
      settings = {"kills": arguments.kills, "draw": random.Random(arguments.seed), "store": store}
      found = _DRILLS[arguments.drill](pathlib.Path(root), **settings)
  rows = ((name, f"{count:,}") for name, count in found.items())
  print(f"\n{measuring.table(['what happened', 'times'], rows)}\n")
  print(f"{time.monotonic() - started:.0f} seconds", flush=True)
  if wrong := [name for name, count in found.items() if count and name.startswith("wrong: ")]:
    sys.exit("\n".join(wrong))


if __name__ == "__main__":
  main()
