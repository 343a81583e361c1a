"""A knowledge base whose writer is killed again and again while another process searches it.

The writer goes through numbered states: it replaces documents, deletes some, and merges segments.
After each kill the knowledge base must have the state that was reported last, or the next; whatever
the reader finds must be of one state; and no file may be left that the next writer does not remove.

  python benchmarks/knowledge_base_kills.py --kills=200
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

_DOCUMENTS = 40
_COMMON = "common"  # a word of all documents
_JOBS = multiprocessing.get_context("forkserver")  # a copy of one process starts in milliseconds
_JOBS.set_forkserver_preload(
  ["realm_jax.knowledge_base.knowledge_base", "realm_jax.devices.directory_lock"]
)


def contents(state: int) -> dict[str, str]:
  """Returns the documents of a state: written, then fewer, then the same."""
  draw = random.Random(state // 3)
  ids = draw.sample(range(_DOCUMENTS), draw.randint(_DOCUMENTS // 2, _DOCUMENTS))
  texts = {f"d{id}": f"The {_COMMON} text of {state // 3 if id % 2 else 'all'}." for id in ids}
  gone = [] if state % 3 == 0 else [*texts][: len(texts) // 3]
  return {id: text for id, text in texts.items() if id not in gone}


def read(base: KnowledgeBase) -> dict[str, str]:
  """Returns the documents that a search for the common word finds."""
  return {hit.id: hit.text for hit in base.search(_COMMON, k=1000)}


def go_on(base: KnowledgeBase, state: int) -> None:
  """Takes a knowledge base from a state to the next one."""
  after = contents(state + 1)
  if state % 3 == 2:
    records = [{"id": id, "text": text} for id, text in after.items()]
    base.update(records, delete_missing=True)
  elif state % 3 == 0:
    base.delete(contents(state).keys() - after.keys())
  else:
    base.compact()


def write_for_ever(path: str, journal: str, state: int) -> None:
  """Goes from state to state, and reports each in a file."""
  base = KnowledgeBase(path)
  with open(journal, "ab", buffering=0) as file:
    while True:
      go_on(base, state)
      state += 1
      file.write(f"{state}\n".encode())


def read_for_ever(path: str, journal: str, found: str) -> None:
  """Searches, and writes how many searches found what no state has, and how many there were."""
  base = KnowledgeBase(path)
  searches = mixed = 0
  while True:
    before = _last(journal)
    documents = read(base)
    states = [contents(state) for state in range(before, _last(journal) + 2)]
    searches, mixed = searches + 1, mixed + (documents not in states)
    pathlib.Path(f"{found}.new").write_text(f"{searches} {mixed}")
    os.replace(f"{found}.new", found)


def _last(journal: str) -> int:
  rows = pathlib.Path(journal).read_bytes()[-200:].split(b"\n")
  return int(rows[-2]) if len(rows) > 1 else 0


def drill(root: pathlib.Path, *, kills: int, draw: random.Random) -> Counter[str]:
  """Kills a writer again and again; returns what happened."""
  path, journal, found = (os.fspath(root / name) for name in ("kb", "journal", "found"))
  KnowledgeBase.create(path, [{"id": i, "text": t} for i, t in contents(0).items()], language="en")
  pathlib.Path(journal).touch()
  reader = _JOBS.Process(target=read_for_ever, args=(path, journal, found), daemon=True)
  reader.start()
  counts: Counter[str] = Counter()
  state = 0
  for _ in range(kills):
    writer = _JOBS.Process(target=write_for_ever, args=(path, journal, state), daemon=True)
    writer.start()
    while _last(journal) == state and writer.is_alive():
      time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.1))
    writer.kill()
    writer.join()
    reported = _last(journal)
    documents = read(KnowledgeBase(path))
    counts["killed"] += 1
    counts["changes"] += reported - state
    if documents == contents(reported):
      state = reported
    elif documents == contents(reported + 1):
      state = reported + 1
      counts["change committed, killed before it was reported"] += 1
    else:
      counts["in no state"] += 1
    # Compaction changes no document, so the state before it and the one after look the same.
    with open(journal, "ab", buffering=0) as file:
      file.write(f"{state}\n".encode())
  reader.kill()
  reader.join()
  searches, counts["searches that found a mixture"] = map(
    int, pathlib.Path(found).read_text().split()
  )
  counts["searches"] = searches
  base = KnowledgeBase(path)
  base.add([{"id": "last", "text": "The last."}])
  base.add([{"id": "end", "text": "The end."}])
  counts["files left"] = len({*os.listdir(os.path.join(path, "segments"))} - _named(path))
  return counts


def _named(path: str) -> set[str]:
  """Returns the segments of all commits that are kept."""
  commits = (json.loads(file.read_text()) for file in pathlib.Path(path, "commits").iterdir())
  return {segment["name"] for commit in commits for segment in commit["segments"]}


WRONG = ("in no state", "searches that found a mixture", "files left")


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--kills", type=int, default=200)
  parser.add_argument("--seed", type=int, default=0)
  asked = parser.parse_args()
  started = time.monotonic()
  with tempfile.TemporaryDirectory(prefix="realm_kills_") as scratch:
    counts = drill(pathlib.Path(scratch), kills=asked.kills, draw=random.Random(asked.seed))
  print("| knowledge base | times |\n|---|---|")
  print("\n".join(f"| {name} | {count:,} |" for name, count in counts.items()))
  print(f"\n{time.monotonic() - started:.0f} seconds", flush=True)
  if any(counts[wrong] for wrong in WRONG):
    sys.exit("something was lost")


if __name__ == "__main__":
  main()
