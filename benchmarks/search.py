"""Queries per second of the sharded searcher, a bare ScaNN call and exact search, in one run.

The bare call searches as many leaves of one index as the target recall takes. Our searcher runs
with the same settings on one shard and, on several, with as few leaves as reach the bare call's
recall (less 0.002, by which the recall of two trainings of one index differs).
All variants take turns, so that what else the machine does falls on all alike.

  python benchmarks/search.py --output=search.json
"""

import argparse
import dataclasses
import json
import os
import statistics
import time

import numpy as np
from scann.scann_ops.py import scann_ops_pybind

from realm_jax.index import assembly, exact_searcher, searcher
from realm_jax.index.publication import choose_leaves

_K = 10
_ANISOTROPIC_THRESHOLD = 0.2
_EXACT = "exact"
_RECALL_TOLERANCE = 0.002
_BLOCK = 2**17


def clustered_embeddings(*, num_passages: int, size: int, num_queries: int, seed: int = 0):
  """Returns passages and queries near some of them, of norm √E as after a LayerNorm.

  Clusters of about 100 passages lie around topics, 16 clusters to a topic.
  """
  rng = np.random.default_rng(seed)
  num_clusters = max(1, num_passages // 100)
  topics = rng.standard_normal((-(-num_clusters // 16), size))
  clusters = topics[rng.integers(len(topics), size=num_clusters)]
  clusters += rng.standard_normal(clusters.shape)
  passages = np.empty((num_passages, size), np.float32)
  for rows in np.split(passages, range(_BLOCK, num_passages, _BLOCK)):
    chosen = clusters[rng.integers(num_clusters, size=len(rows))]
    rows[:] = _normalize(chosen + 1.5 * rng.standard_normal(rows.shape))
  queries = passages[rng.integers(num_passages, size=num_queries)]
  return passages, _normalize(queries + rng.standard_normal(queries.shape))


def _normalize(rows: np.ndarray) -> np.ndarray:
  norms = np.linalg.norm(rows, axis=1, keepdims=True)
  return (rows / norms * np.sqrt(rows.shape[1])).astype(np.float32)


def bare_index(passages: np.ndarray, config: searcher.SearcherConfig):
  """Returns ScaNN's own index with the settings that our searcher passes for one shard."""
  sample = min(len(passages), config.training_sample_size)
  threshold = _ANISOTROPIC_THRESHOLD * float(np.linalg.norm(passages, axis=1).mean())
  return (
    scann_ops_pybind.builder(passages, _K, "dot_product")
    .tree(config.num_leaves, config.num_leaves_to_search, training_sample_size=sample)
    .score_ah(
      searcher.DIMENSIONS_PER_CODE,
      anisotropic_quantization_threshold=threshold,
      training_sample_size=min(sample, 16_384),
    )
    .reorder(config.reorder_candidates)
    .build()
  )


def searcher_with_recall(shards, queries, exact_ids, *, config, recall):
  """Returns a searcher and about the fewest leaves of it that reach `recall`, or all of them."""
  built = assembly.assemble(shards, config=config)

  def reached(leaves: int) -> float:
    found = built.with_leaves(leaves).search(queries, _K).ids_BxK
    return searcher.recall_at_k(found, exact_ids)

  leaves, _ = choose_leaves(reached, num_leaves=config.num_leaves, target=recall)
  return built.with_leaves(leaves), leaves


def time_in_turns(variants, queries, *, repetitions: int) -> dict[str, list[float]]:
  """Returns the seconds of one call of each variant in each of the repetitions."""
  seconds = {name: [] for name in variants}
  names = list(variants)
  for repetition in range(repetitions + 1):
    for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
      calls = 1 if name == _EXACT else max(1, 512 // len(queries))
      start = time.perf_counter()
      for _ in range(calls):
        variants[name](queries)
      if repetition:  # the first one warms up
        seconds[name].append((time.perf_counter() - start) / calls)
  return seconds


def ratio(baseline: list[float], seconds: list[float]) -> float:
  """Returns how many times as fast as the baseline, the median over repetitions."""
  return round(statistics.median(b / s for b, s in zip(baseline, seconds, strict=True)), 3)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, default=100_000)
  parser.add_argument("--embedding_size", type=int, default=128)
  parser.add_argument("--batch_sizes", type=int, nargs="+", default=[32, 512])
  parser.add_argument("--num_shards", type=int, nargs="+", default=[1, 2])
  parser.add_argument("--repetitions", type=int, default=30)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  passages, queries = clustered_embeddings(
    num_passages=args.num_passages,
    size=args.embedding_size,
    num_queries=max(1024, *args.batch_sizes),
  )
  exact = exact_searcher.ExactSearcher(passages)
  exact_ids = exact.search(queries, _K).ids_BxK
  config = searcher.SearcherConfig(kind="scann", num_shards=1).for_corpus(len(passages))
  shards = assembly.build_shards(passages, config=config)
  same, leaves = searcher_with_recall(
    shards, queries, exact_ids, config=config, recall=config.target_recall
  )
  bare = bare_index(passages, dataclasses.replace(config, num_leaves_to_search=leaves))
  threads = config.num_threads()
  bare.set_num_threads(threads)

  variants = {
    "bare": bare.search_batched,
    "bare, parallel": lambda q: bare.search_batched_parallel(q, batch_size=-(-len(q) // threads)),
  }
  found = bare.search_batched(queries)[0].astype(np.int32)
  recalls = dict.fromkeys(variants, searcher.recall_at_k(found, exact_ids))
  for num_shards in args.num_shards:
    name = f"ours, {num_shards} shard{'s' if num_shards > 1 else ''}"
    setting = searcher.SearcherConfig(kind="scann", num_shards=num_shards).for_corpus(len(passages))
    ours = same
    if num_shards > 1:
      target = recalls["bare"] - _RECALL_TOLERANCE
      shards = assembly.build_shards(passages, config=setting)
      ours, _ = searcher_with_recall(shards, queries, exact_ids, config=setting, recall=target)
    recalls[name] = searcher.recall_at_k(ours.search(queries, _K).ids_BxK, exact_ids)
    variants[name] = lambda q, ours=ours: ours.search(q, _K)
  recalls[_EXACT] = 1.0
  variants[_EXACT] = lambda q: exact.search(q, _K)

  rows = []
  for batch_size in args.batch_sizes:
    seconds = time_in_turns(variants, queries[:batch_size], repetitions=args.repetitions)
    best_bare = min(("bare", "bare, parallel"), key=lambda name: statistics.median(seconds[name]))
    for name in variants:
      rows.append(
        {
          "variant": name,
          "batch_size": batch_size,
          "recall_at_10": round(recalls[name], 4),
          "queries_per_second": round(batch_size / statistics.median(seconds[name])),
          "ratio_to_bare": ratio(seconds["bare"], seconds[name]),
          "ratio_to_best_bare": ratio(seconds[best_bare], seconds[name]),
        }
      )
  print(f"{args.num_passages} passages x {args.embedding_size}, {threads} threads")
  print(f"{'':16} {'batch':>5} {'recall@10':>9} {'queries/s':>9} {'/bare':>6} {'/best bare':>10}")
  for row in rows:
    print(
      f"{row['variant']:16} {row['batch_size']:5} {row['recall_at_10']:9.4f}"
      f" {row['queries_per_second']:9} {row['ratio_to_bare']:6.2f}"
      f" {row['ratio_to_best_bare']:10.2f}"
    )
  if args.output:
    with open(args.output, "w") as file:
      json.dump({"cores": os.cpu_count(), "settings": vars(args), "rows": rows}, file, indent=2)


if __name__ == "__main__":
  main()
