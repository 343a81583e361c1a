"""Passages per second, peak memory and equality of stores, from raw text to a passage store.

Simple English Wikipedia, where it lies beside the project, is prepared once with so many workers as
asked for; rate and memory count everything from the start of the process to its end. Memory is the
sum over all processes of what each has alone plus its share of what it shares (PSS). Then the first
documents are prepared by one process, by two workers and, with the extra `beam`, by Apache Beam's
local runner.

  python benchmarks/prepare_corpus.py --output=prepare_corpus.json
"""

import argparse
import gzip
import importlib.util
import itertools
import json
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time

import psutil

from realm_jax.corpus import reading
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.text import tokenization

WIKIPEDIA = (
  pathlib.Path(__file__).resolve().parents[2] / "shared/data/corpus/simplewiki_2021.jsonl.gz"
)
_SECONDS_BETWEEN_LOOKS = 1.0


def memory(process: psutil.Process) -> int:
  """Returns the bytes that a process and its descendants take together."""
  total = 0
  for each in [process, *process.children(recursive=True)]:
    try:
      total += each.memory_full_info().pss
    except psutil.NoSuchProcess:
      continue  # it has ended meanwhile
  return total


def measured(**keywords) -> dict:
  """Runs the job in a process of its own; returns its figures."""
  process = multiprocessing.get_context("spawn").Process(target=prepare_corpus, kwargs=keywords)
  start = time.perf_counter()
  process.start()
  looks = []
  while process.is_alive():
    looks.append(memory(psutil.Process(process.pid)))
    process.join(_SECONDS_BETWEEN_LOOKS)
  seconds = time.perf_counter() - start
  if process.exitcode:
    sys.exit(f"the job ended with exit code {process.exitcode}")
  with open(os.path.join(keywords["output"], "metadata.json")) as file:
    metadata = json.load(file)
  files = [path for path in pathlib.Path(keywords["output"]).rglob("*") if path.is_file()]
  halves = looks[: len(looks) // 2], looks[len(looks) // 2 :]
  return {
    "passages": metadata["num_passages"],
    "bytes": sum(path.stat().st_size for path in files),
    "counts": metadata["counts"],
    "seconds": round(seconds, 1),
    "passages_per_second": round(metadata["num_passages"] / seconds),
    "peak_mib_of_halves": [max(half, default=0) >> 20 for half in halves],
    "fingerprint": metadata["fingerprint"],
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--corpus", default=str(WIKIPEDIA), help="JSON Lines, gzip")
  parser.add_argument("--vocabulary", help="directory with vocab.txt; learned where not given")
  parser.add_argument("--num_workers", type=int, default=2)
  parser.add_argument("--first_documents", type=int, default=5_000, help="for the comparison")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()
  if not os.path.exists(args.corpus):
    sys.exit(f"{args.corpus} is not there; name another corpus with --corpus")

  with tempfile.TemporaryDirectory() as directory:
    first = os.path.join(directory, "first.jsonl")
    with gzip.open(args.corpus, "rb") as source, open(first, "wb") as target:
      target.writelines(itertools.islice(source, args.first_documents))
    vocabulary = args.vocabulary
    if vocabulary is None:
      vocabulary = os.path.join(directory, "vocabulary")
      texts = [document.text for document in reading.DocumentReader([first])]
      tokenization.learn(lambda: texts, vocab_size=30_522).save(vocabulary)
    store = os.path.join(directory, "store")
    whole = measured(
      input=args.corpus, output=store, vocabulary=vocabulary, num_workers=args.num_workers
    )
    shutil.rmtree(store)
    ways = {
      "1 process": {},
      "2 workers": {"num_workers": 2},
    }
    if importlib.util.find_spec("apache_beam"):
      ways["Beam's local runner"] = {"engine": "beam"}
    else:
      print("without Apache Beam, which is not installed")
    same = {
      name: measured(input=first, output=store, vocabulary=vocabulary, **keywords)["fingerprint"]
      for name, keywords in ways.items()
    }

  print(f"{args.corpus}, {args.num_workers} workers: {whole['passages']:,} passages")
  print(f"bytes on disk           {whole['bytes']:12,}")
  print(f"passages per second         {whole['passages_per_second']:8,}")
  print("peak memory of halves, MiB  {:8,} {:8,}".format(*whole["peak_mib_of_halves"]))
  for name, fingerprint in same.items():
    print(f"{name:27} {fingerprint}")
  if args.output:
    with open(args.output, "w") as file:
      json.dump({"settings": vars(args), "whole": whole, "fingerprints": same}, file, indent=2)
  if len(set(same.values())) > 1:
    sys.exit("the stores differ")


if __name__ == "__main__":
  main()
