"""How search, building and loading an index grow with the number of passages, at equal recall.

Passages are drawn from a generation, with questions as queries, or lie in made-up clusters, as in
`search.py`, which in so many dimensions have hardly any structure left for a tree to find. Of each
number of passages an index of one shard, or of several, searches the fewest leaves (within 10 %)
that reach the recall. Seconds are those of the processor, so that other programs count less, but
for loading. The exponent of a row is that of the growth since the row before.

  python benchmarks/search_growth.py --kind=faiss --num_passages 10000 100000 1000000
  python benchmarks/search_growth.py --num_passages 10000 30000 100000 --index=INDEX \\
    --checkpoints=CHECKPOINTS --vocabulary=VOCABULARY --questions=QUESTIONS.jsonl
"""

import argparse
import dataclasses
import json
import math
import tempfile
import time

import numpy as np
from generation_swap import load_alone, publish_shards
from search import clustered_embeddings, searcher_with_recall
from search_libraries import embed

from realm_jax.index import assembly, exact_searcher, generations, searcher

_K, _BATCH, _QUERIES = 10, 128, 512


def embeddings(num_passages: int, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
  """Returns passages `[N, E]` and queries `[B, E]`, real ones if there is an index."""
  if args.index is None:
    return clustered_embeddings(
      num_passages=num_passages, size=args.embedding_size, num_queries=_QUERIES
    )
  passages = assembly.load_embeddings(args.index, generations.resolve(args.index, None))
  chosen = np.random.default_rng(0).choice(len(passages), num_passages, replace=False)
  with open(args.questions, encoding="utf-8") as file:
    asked = [json.loads(line)["question"] for line in file][:_QUERIES]
  queries = embed(asked, checkpoints=args.checkpoints, vocabulary=args.vocabulary)
  return np.asarray(passages[np.sort(chosen)], np.float32), queries


def measured(num_passages: int, args: argparse.Namespace) -> dict[str, float]:
  """Returns the figures of one row."""
  passages, queries = embeddings(num_passages, args)
  exact_ids = exact_searcher.BlockwiseExactSearcher(passages).search(queries, _K).ids_BxK
  config = searcher.SearcherConfig(
    kind=args.kind, num_shards=args.num_shards, threads=args.threads
  ).for_corpus(num_passages)
  if args.samples_per_leaf:
    sample = args.samples_per_leaf * config.num_leaves
    config = dataclasses.replace(config, training_sample_size=sample)
  start = time.process_time()
  shards = assembly.build_shards(passages, config=config)
  build = time.process_time() - start
  size = sum(array.nbytes for shard in shards for array in shard.values())
  loading, wait = math.nan, math.nan
  if args.loads:
    with tempfile.TemporaryDirectory() as root:
      publish_shards(root, shards, config=config)
      loading, wait = load_alone(root, repetitions=args.loads, in_subprocess=True)
  found, leaves = searcher_with_recall(
    shards, queries, exact_ids, config=config, recall=args.recall
  )
  spent = []
  for repetition in range(args.repetitions + 1):
    start = time.process_time()
    for first in range(0, len(queries), _BATCH):
      found.search(queries[first : first + _BATCH], _K)
    if repetition:  # the first one warms up
      spent.append((time.process_time() - start) / len(queries))
  return {
    "passages": num_passages,
    "shards": config.num_shards,
    "leaves": config.num_leaves,
    "leaves_searched": leaves,
    "recall": searcher.recall_at_k(found.search(queries, _K).ids_BxK, exact_ids),
    "search_microseconds": 1e6 * min(spent),
    "build_seconds": build,
    "mib": size / 2**20,
    "load_seconds": loading,
    "longest_wait_milliseconds": 1e3 * wait,
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--kind", choices=searcher.TREES, default="scann")
  parser.add_argument("--num_passages", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
  parser.add_argument("--num_shards", type=int, help="as many as an index builder makes")
  parser.add_argument("--embedding_size", type=int, default=128)
  parser.add_argument("--index", help="directory of generations whose embeddings to draw from")
  parser.add_argument("--checkpoints", help="of the encoder that embedded them")
  parser.add_argument("--vocabulary", help="of that encoder")
  parser.add_argument("--questions", help="JSON Lines with `question`")
  parser.add_argument("--recall", type=float, default=0.9)
  parser.add_argument("--samples_per_leaf", type=int, help="of k-means")
  parser.add_argument("--threads", type=int)
  parser.add_argument("--repetitions", type=int, default=5)
  parser.add_argument("--loads", type=int, default=3, help="0 publishes nothing")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()
  if (
    len({bool(each) for each in (args.index, args.checkpoints, args.vocabulary, args.questions)})
    > 1
  ):
    parser.error("--index, --checkpoints, --vocabulary and --questions go together")
  rows = []
  print(
    "| passages | shards | leaves | recall@10 | µs a query | exponent | build, s | MiB | load, s"
    " | longest wait, ms |"
  )
  for num_passages in args.num_passages:
    row = measured(num_passages, args)
    row["exponent"] = math.nan
    if rows:
      growth = row["search_microseconds"] / rows[-1]["search_microseconds"]
      row["exponent"] = math.log(growth) / math.log(num_passages / rows[-1]["passages"])
    rows.append(row)
    print(
      f"| {num_passages:,} | {row['shards']} | {row['leaves_searched']} of {row['leaves']}"
      f" | {row['recall']:.3f} | {row['search_microseconds']:.1f} | {row['exponent']:.2f}"
      f" | {row['build_seconds']:.1f} | {row['mib']:.0f} | {row['load_seconds']:.2f}"
      f" | {row['longest_wait_milliseconds']:.0f} |",
      flush=True,
    )
  if args.output:
    with open(args.output, "w") as file:
      json.dump({"settings": vars(args), "rows": rows}, file, indent=2)


if __name__ == "__main__":
  main()
