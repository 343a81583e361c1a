"""Queries per second of ScaNN and FAISS on the embeddings of a generation, at equal recall.

Each library searches the fewest leaves (within 10 %) that reach the recall, and both take turns, so
that what else the machine does falls on both. Queries are questions, embedded by the checkpoint.

  python benchmarks/search_libraries.py --index=INDEX --checkpoints=CHECKPOINTS \\
    --vocabulary=VOCABULARY --questions=QUESTIONS.jsonl
"""

import argparse
import json
import statistics
import time

import numpy as np

from realm_jax.checkpoints import saved_models
from realm_jax.devices import datatypes, partitioning
from realm_jax.index import assembly, exact_searcher, generations, searcher
from realm_jax.index.recall import choose_leaves
from realm_jax.models.encoder_programs import query_encoder_program
from realm_jax.text import tokenization

_K, _LENGTH, _BATCH = 10, 64, 64
_RECALLS = (0.95, 0.98, 0.99)


def embed(questions: list[str], *, checkpoints: str, vocabulary: str) -> np.ndarray:
  """Returns the embeddings `[B, E]` of questions."""
  saved = saved_models.load(checkpoints)
  _, params = saved.tower(partitioning.make_mesh(), of="query")
  pieces = tokenization.load(vocabulary)
  ids_BxL = np.zeros((len(questions), _LENGTH), np.int32)
  for row, found in zip(ids_BxL, pieces.encode_batch(questions), strict=True):
    found = [pieces.cls_id, *found[: _LENGTH - 2], pieces.sep_id]
    row[: len(found)] = found
  encode = query_encoder_program(saved.description.dual_encoder)
  batches = np.split(ids_BxL, range(_BATCH, len(ids_BxL), _BATCH))
  return np.concatenate(
    [
      np.asarray(encode(params, datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)))
      for ids in batches
    ]
  )


def queries_per_second(variants, queries, *, repetitions: int) -> dict[str, float]:
  """Returns the median of each variant, taking turns."""
  seconds = {name: [] for name in variants}
  for repetition in range(repetitions + 1):
    for name, searched in variants.items():
      start = time.perf_counter()
      searched.search(queries, _K)
      if repetition:  # the first one warms up
        seconds[name].append(time.perf_counter() - start)
  return {name: len(queries) / statistics.median(spent) for name, spent in seconds.items()}


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--index", required=True, help="directory of generations")
  parser.add_argument("--checkpoints", required=True, help="of the encoder that embedded them")
  parser.add_argument("--vocabulary", required=True)
  parser.add_argument("--questions", required=True, help="JSON Lines with `question`")
  parser.add_argument("--num_questions", type=int, default=2048)
  parser.add_argument("--threads", type=int)
  parser.add_argument("--repetitions", type=int, default=9)
  args = parser.parse_args()
  with open(args.questions, encoding="utf-8") as file:
    asked = [json.loads(line)["question"] for line in file][: args.num_questions]
  queries = embed(asked, checkpoints=args.checkpoints, vocabulary=args.vocabulary)
  generation = generations.resolve(args.index, None)
  embeddings = assembly.load_embeddings(args.index, generation)
  exact_ids = exact_searcher.BlockwiseExactSearcher(embeddings).search(queries, _K).ids_BxK

  trees, leaves = {}, {}
  for kind in searcher.TREES:
    config = searcher.SearcherConfig(kind=kind, threads=args.threads).for_corpus(len(embeddings))
    start = time.perf_counter()
    shards = assembly.build_shards(embeddings, config=config)
    seconds = time.perf_counter() - start
    size = sum(a.nbytes for s in shards for name, a in s.items() if name != "embeddings") / 2**20
    trees[kind], leaves[kind] = assembly.assemble(shards, config=config), config.num_leaves
    print(f"{kind}: built in {seconds:.1f} s, {size:.0f} MiB beside the embeddings", flush=True)

  print(f"{embeddings.shape[0]} passages x {embeddings.shape[1]}, {config.num_threads()} threads")
  print("| recall@10 | " + " | ".join(f"{k} leaves | {k} queries/s" for k in trees) + " | ratio |")
  for target in _RECALLS:
    variants, chosen = {}, {}
    for kind, tree in trees.items():
      chosen[kind], _ = choose_leaves(
        lambda n, tree=tree: searcher.recall_at_k(
          tree.with_leaves(n).search(queries, _K).ids_BxK, exact_ids
        ),
        num_leaves=leaves[kind],
        target=target,
      )
      variants[kind] = tree.with_leaves(chosen[kind])
    rates = queries_per_second(variants, queries[:512], repetitions=args.repetitions)
    cells = " | ".join(f"{chosen[k]} of {leaves[k]} | {rates[k]:,.0f}" for k in trees)
    print(f"| {target} | {cells} | {rates['faiss'] / rates['scann']:.2f} |", flush=True)


if __name__ == "__main__":
  main()
