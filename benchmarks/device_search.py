"""Search split over eight CPU devices, exact and approximate, against brute force in numpy.

The exact search must find what numpy finds, the approximate one its recall target; either ends the
benchmark with exit code 1 if not. On CPU the approximate top-k is an exact one, so that its speed
and recall here say nothing about accelerators (`benchmarks/accelerator.py` measures those).

  JAX_PLATFORMS=cpu python benchmarks/device_search.py
"""

import argparse
import os
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get(
  "XLA_FLAGS", ""
)

import jax
import ml_dtypes
import numpy as np

from realm_jax.index import device_searcher, searcher

_DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def brute_force(
  embeddings_NxE: np.ndarray, queries_BxE: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns ids and float64 scores of the best, in parts that fit into memory."""
  ids, scores = [], []
  for first in range(0, len(embeddings_NxE), 100_000):
    rows_nxE = embeddings_NxE[first : first + 100_000].astype(np.float64)
    scores_Bxn = queries_BxE.astype(np.float64) @ rows_nxE.T
    best_Bxk = np.argpartition(-scores_Bxn, k - 1, axis=1)[:, :k]
    ids.append(first + best_Bxk)
    scores.append(np.take_along_axis(scores_Bxn, best_Bxk, axis=1))
  all_ids, all_scores = np.concatenate(ids, axis=1), np.concatenate(scores, axis=1)
  order = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
  return np.take_along_axis(all_ids, order, axis=1), np.take_along_axis(all_scores, order, axis=1)


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, default=1_000_000)
  parser.add_argument("--embedding_size", type=int, default=128)
  parser.add_argument("--num_queries", type=int, default=128)
  parser.add_argument("--k", type=int, default=10)
  parser.add_argument("--recall_target", type=float, default=0.95)
  parser.add_argument("--dtype", choices=list(_DTYPES), default="float32")
  parser.add_argument("--repetitions", type=int, default=3)
  args = parser.parse_args()

  random = np.random.default_rng(0)
  shape = (args.num_passages, args.embedding_size)
  embeddings_NxE = random.standard_normal(shape, np.float32).astype(_DTYPES[args.dtype])
  queries_BxE = random.standard_normal((args.num_queries, args.embedding_size), np.float32)
  expected, scores_BxK = brute_force(embeddings_NxE, queries_BxE, args.k)
  kind = jax.devices()[0].device_kind
  print(f"{shape[0]:,} x {shape[1]} {args.dtype} on {jax.device_count()} devices ({kind})")
  print(f"{'':18} {'seconds':>8} {'queries/s':>10} {'recall':>7} {'score error':>12}")
  right = True
  for name, target in (("exact", None), (f"approximate {args.recall_target}", args.recall_target)):
    index = device_searcher.DeviceSearcher(embeddings_NxE, recall_target=target)
    found = index.search(queries_BxE, args.k)
    seconds = []
    for _ in range(args.repetitions):
      start = time.perf_counter()
      index.search(queries_BxE, args.k)
      seconds.append(time.perf_counter() - start)
    recall = searcher.recall_at_k(found.ids_BxK, expected)
    error = float(np.abs(found.scores_BxK - scores_BxK).max())
    median = statistics.median(seconds)
    print(f"{name:18} {median:8.3f} {args.num_queries / median:10.0f} {recall:7.4f} {error:12.2e}")
    right &= np.array_equal(found.ids_BxK, expected) if target is None else recall >= target
    del index  # before the next one takes as much memory
  print("right" if right else "WRONG: the exact ids differ from numpy's, or the recall is too low")
  return 0 if right else 1


if __name__ == "__main__":
  sys.exit(main())
