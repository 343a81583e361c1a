"""Passages embedded per second: batches of similar length against padding all to the longest.

Both give every batch about equally many padded tokens and embed the same passages with the same
program but for its shapes. The lengths are drawn, or those of a prepared corpus.

  python benchmarks/embed_passages.py --output=embed_passages.json
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import jax
import numpy as np
from demo_training import write_store

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig, Tower
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.retrieval.passage_embedding import embed_passages, passage_batches

CONFIG = DualEncoderConfig(
  bert=BertConfig(vocab_size=4096, hidden_size=128, num_layers=2, num_heads=2, mlp_size=512)
)


def drawn_lengths(num_passages: int, *, longest: int) -> np.ndarray:
  """Returns lengths with a median of 130 wordpieces, cut to 12 and the longest."""
  lengths = np.random.default_rng(0).lognormal(np.log(130), 0.6, num_passages)
  return np.clip(lengths, 12, longest).astype(int)


def lengths_of(passages: str, num_passages: int) -> np.ndarray:
  """Returns the lengths of passages spread evenly over a prepared corpus."""
  lengths = PassageStore(passages).lengths()
  return lengths[np.linspace(0, len(lengths) - 1, num_passages).astype(int)]


def padded_batches(store: PassageStore, *, passage_length: int, tokens_per_batch: int):
  """Yields every passage once, in order and padded to `passage_length`."""
  size = max(1, tokens_per_batch // passage_length)
  for first in range(0, len(store), size):
    rows = np.arange(first, min(first + size, len(store)))
    filled = np.pad(rows, (0, size - len(rows)), mode="edge")
    yield rows, passage_tokens(store, filled, length=passage_length)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, default=4_000)
  parser.add_argument("--passage_length", type=int, default=288)
  parser.add_argument("--tokens_per_batch", type=int, default=8_192)
  parser.add_argument("--repetitions", type=int, default=3)
  parser.add_argument("--passages", help="directory of a prepared corpus whose lengths to take")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  if args.passages:
    lengths = np.minimum(lengths_of(args.passages, args.num_passages), args.passage_length)
  else:
    lengths = drawn_lengths(args.num_passages, longest=args.passage_length)
  tower = Tower(CONFIG)
  encode = jax.jit(lambda params, tokens: tower.apply(params, tokens, deterministic=True))
  sizes = {"passage_length": args.passage_length, "tokens_per_batch": args.tokens_per_batch}
  variants = {"padded": padded_batches, "bucketed": passage_batches}
  seconds = {name: [] for name in variants}
  with tempfile.TemporaryDirectory() as directory:
    store = write_store(os.path.join(directory, "passages"), lengths)
    example = passage_tokens(store, np.arange(1), length=args.passage_length)
    params = jax.jit(lambda: tower.init(jax.random.key(0), example, deterministic=True))()
    tokens = {
      name: sum(batch.ids.size for _, batch in batches(store, **sizes))
      for name, batches in variants.items()
    }
    embeddings = {}
    for repetition in range(args.repetitions + 1):
      for name in variants if repetition % 2 else reversed(variants):
        start = time.perf_counter()
        embeddings[name] = embed_passages(
          variants[name](store, **sizes),
          encoders=[lambda tokens: encode(params, tokens)],
          passages_N=np.arange(len(store)),
          embedding_size=CONFIG.projection_size,
          dtype=np.float32,
        )
        if repetition:  # the first one compiles
          seconds[name].append(time.perf_counter() - start)
  rounding = {"float32": 1e-3, "bfloat16": 2e-2}[CONFIG.bert.compute_dtype]
  np.testing.assert_allclose(embeddings["bucketed"], embeddings["padded"], atol=rounding)

  speedups = [p / b for p, b in zip(seconds["padded"], seconds["bucketed"], strict=True)]
  result = {
    "cores": os.cpu_count(),
    "settings": vars(args),
    "mean_length": round(float(lengths.mean()), 1),
    "passages_per_second": {
      name: round(args.num_passages / statistics.median(seconds[name])) for name in variants
    },
    "share_of_padding": {
      name: round(1 - float(lengths.sum()) / tokens[name], 3) for name in variants
    },
    "speedup": round(statistics.median(speedups), 2),
  }
  print(f"{args.num_passages} passages of {result['mean_length']} wordpieces on average")
  print(f"{'':10} {'passages/s':>10} {'padding':>8}")
  for name in variants:
    rate, padding = result["passages_per_second"][name], result["share_of_padding"][name]
    print(f"{name:10} {rate:10} {padding:8.1%}")
  print(f"bucketed / padded {result['speedup']:.2f}")
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()
