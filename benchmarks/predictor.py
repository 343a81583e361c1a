"""Seconds until a mask is filled and explained, on one core: one sentence at a time, and batches.

python benchmarks/predictor.py --run=runs/demo --output=predictor.json
"""

import argparse
import json
import os
import statistics
import time

# Before JAX makes its threads.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from realm_jax.corpus.edits import Edits  # noqa: E402
from realm_jax.data.questions import read_questions  # noqa: E402
from realm_jax.jobs.answering_models import open_answering_model  # noqa: E402


def seconds_of(ask, items) -> list[float]:
  """Returns the seconds that each item took."""
  seconds = []
  for item in items:
    started = time.perf_counter()
    ask(item)
    seconds.append(time.perf_counter() - started)
  return seconds


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--run", default="runs/demo", help="directory of a finished `make demo`")
  parser.add_argument("--questions", type=int, default=100)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  started = time.perf_counter()
  filler = open_answering_model(
    checkpoints=os.path.join(args.run, "pretrain", "checkpoints"),
    passages=os.path.join(args.run, "passages"),
    index=os.path.join(args.run, "index"),
    history=4,
  )
  opened = time.perf_counter()
  filler.warm_up(max_texts=16)
  warm = time.perf_counter()
  questions = read_questions(os.path.join(args.run, "almanac", "heldout.jsonl"))[: args.questions]
  texts = [question.masked_text for question in questions]
  passage = filler.write("United Kingdom", "Shoppers in the United Kingdom pay with the euro.")
  edits = Edits().with_passage(0, passage)

  measured = {
    "one": seconds_of(lambda text: filler.fill_mask([text]), texts),
    "one, with rankings": seconds_of(
      lambda text: filler.fill_mask([text], with_rankings=True), texts
    ),
    "one, corpus edited": seconds_of(lambda text: filler.fill_mask([text], edits=edits), texts),
    "batch of 16": seconds_of(
      filler.fill_mask, [texts[i : i + 16] for i in range(0, len(texts) - 15, 16)]
    ),
  }
  result = {
    "passages": len(filler.store),
    "seconds_to_open": round(opened - started, 2),
    "seconds_to_warm_up": round(warm - opened, 2),
    "milliseconds": {
      name: {
        "median": round(1000 * statistics.median(seconds), 1),
        "p95": round(1000 * statistics.quantiles(seconds, n=20)[-1], 1),
      }
      for name, seconds in measured.items()
    },
  }
  print(f"{result['passages']} passages, one core; opened in {result['seconds_to_open']} s,")
  print(f"warm after {result['seconds_to_warm_up']} s")
  for name, figures in result["milliseconds"].items():
    print(f"{name:20} median {figures['median']:7.1f} ms   p95 {figures['p95']:7.1f} ms")
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()
