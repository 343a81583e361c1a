"""How fresh an index stays at equal embedding work: whole refreshes against partial ones.

Replays the index builder beside a training whose checkpoints were all kept: embeds the corpus with
each of them, and searches the index of each strategy with the queries that the training read next.
The index builder embeds `1/refresh` of the corpus from one checkpoint to the next. "whole" embeds
the corpus again and again, each time with the newest checkpoint. The others spend a share of this
work on a few passages and the newest checkpoint, and the rest on whole refreshes:

- "rows" replaces the embeddings of the passages retrieved most since the last whole index;
- "rows by age" counts passages more, the older their embeddings are;
- "map" embeds a random sample, and maps each query by the transpose of the linear map from its old
  embeddings to the new ones, because `(M e) · q = e · (Mᵀ q)`.

Prints the mean recall of the fresh top 5, those of an index rebuilt at every checkpoint, and the
gain over "whole" with its 95 % interval, bootstrapped over runs of five checkpoints.

  realm pretrain ... --checkpoint_every=10 --keep_checkpoints=1000
  python benchmarks/partial_refresh.py --checkpoints=runs/x/checkpoints --corpus=runs/training \
    --passages=runs/passages
"""

import argparse
import dataclasses
import itertools
import os
from collections.abc import Iterator

import numpy as np

from realm_jax import partitioning
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.index import query_map
from realm_jax.models.encoder_programs import passage_encoder_program
from realm_jax.retrieval.passage_embedding import embed_passages, passage_batches
from realm_jax.runs.example_sources import Examples, MaskedQueryData
from realm_jax.saved import saved_models
from realm_jax.training.checkpoints import steps

TOP = 5
BLOCK = 5  # checkpoints that are resampled together


@dataclasses.dataclass(frozen=True)
class Series:
  """Embeddings of all passages by each checkpoint, and of the queries that follow it."""

  passages_CxNxE: np.ndarray
  queries_CxQxE: np.ndarray


@dataclasses.dataclass(frozen=True)
class Strategy:
  """What a builder embeds.

  Attributes:
    share: Share of its work for a few passages.
    kind: What it does with them.
  """

  share: float = 0.0
  kind: str = "whole"

  def __str__(self) -> str:
    return f"{self.share:.0%} {self.kind}" if self.share else self.kind


STRATEGIES = [
  Strategy(),
  *(Strategy(share, kind) for kind in ("rows", "rows by age", "map") for share in (0.1, 0.25, 0.5)),
]


def embedded(checkpoints: str, corpus: str, passages: str, *, batch_size: int, seed: int) -> Series:
  """Embeds passages and queries with every checkpoint."""
  store, mesh = PassageStore(passages), partitioning.make_mesh()
  saved = [saved_models.load(checkpoints, step=step) for step in steps(checkpoints)]
  description = saved[0].description
  data = MaskedQueryData(
    batch_size=batch_size,
    query_length=description.query_length,
    max_masks=description.max_masks or MaskedQueryData.max_masks,  # a warm start has none
  )
  vocabulary = os.path.join(passages, "vocabulary")
  stream = Examples(data=data, source=corpus, vocabulary=vocabulary).streams(seed=seed)
  program = passage_encoder_program(description.dual_encoder, mesh)
  found, asked = [], []
  for model, after in itertools.pairwise(saved):
    queries = [batches.tokens(next(stream)["query"]) for _ in range(after.step - model.step)]
    _, params = model.tower(mesh, of="query")
    asked.append(np.concatenate([np.asarray(program(params, tokens)) for tokens in queries]))
    _, params = model.tower(mesh, of="passage")
    found.append(
      embed_passages(
        passage_batches(store, passage_length=description.passage_length, tokens_per_batch=16_384),
        encoders=[lambda tokens, params=params: program(params, tokens)],
        passages_N=np.arange(len(store)),
        embedding_size=description.dual_encoder.projection_size,
        dtype=np.float32,
      )
    )
    print(f"step {model.step} embedded", flush=True)
  return Series(np.stack(found), np.stack(asked))


def best(queries_QxE: np.ndarray, passages_NxE: np.ndarray) -> np.ndarray:
  """Returns the ids `[Q, 5]` of the best passages, in any order."""
  return np.argpartition(-(queries_QxE @ passages_NxE.T), TOP, axis=1)[:, :TOP]


def recalls(series: Series, fresh_CxQxK: np.ndarray, strategy: Strategy, *, refresh: int):
  """Yields the mean recall at each checkpoint.

  Args:
    series: Passages and queries.
    fresh_CxQxK: The best passages of an index rebuilt at every checkpoint.
    strategy: What the builder embeds.
    refresh: Checkpoints that a whole refresh takes if nothing else is embedded.
  """
  num_passages = series.passages_CxNxE.shape[1]
  rows, random = np.arange(num_passages), np.random.default_rng(0)
  made_N = np.zeros(num_passages, np.int64)  # the checkpoint that embedded each passage
  counts_N = np.zeros(num_passages)
  begun, left = 0, float(num_passages)
  few = round(strategy.share * num_passages / refresh)
  mapped_ExE = np.eye(series.passages_CxNxE.shape[2])
  for now, queries_QxE in enumerate(series.queries_CxQxE):
    index_NxE = series.passages_CxNxE[made_N, rows]
    found = best(queries_QxE @ mapped_ExE, index_NxE)
    hits = (found[:, :, None] == fresh_CxQxK[now][:, None, :]).any(axis=1)
    yield hits.mean()
    counts_N += np.bincount(found.ravel(), minlength=num_passages)
    # The work from this checkpoint to the next.
    wanted_N = counts_N * (now - made_N) if strategy.kind == "rows by age" else counts_N
    left -= num_passages / refresh - few
    if left <= 0:
      made_N = np.maximum(made_N, begun)
      counts_N[:] = 0
      begun, left = now + 1, float(num_passages)
    if strategy.kind == "map":
      sample = random.choice(num_passages, few, replace=False)
      new_JxE = series.passages_CxNxE[now, sample]
      old_JxE = series.passages_CxNxE[made_N[sample], sample]
      mapped_ExE = query_map.fit(old_JxE, new_JxE)
    else:
      made_N[np.argsort(-wanted_N, kind="stable")[:few]] = now


def interval(gains_C: np.ndarray) -> tuple[float, float]:
  """Returns the 95 % interval of the mean, by resampling runs of successive checkpoints."""
  random = np.random.default_rng(0)
  starts = np.arange(len(gains_C) - BLOCK + 1)
  blocks = random.choice(starts, (2000, -(-len(gains_C) // BLOCK)))
  means = gains_C[(blocks[:, :, None] + np.arange(BLOCK))].mean(axis=(1, 2))
  low, high = np.percentile(means, [2.5, 97.5])
  return float(low), float(high)


def mixture(series: Series, fresh_CxQxK: np.ndarray, *, age: int) -> str:
  """Returns what replacing the 2 % of passages retrieved most does to an index of some age."""
  num_passages = series.passages_CxNxE.shape[1]
  figures = []
  for now in range(age, len(fresh_CxQxK), BLOCK):
    counts_N = np.bincount(fresh_CxQxK[max(0, now - 2) : now].ravel(), minlength=num_passages)
    top = np.argsort(-counts_N, kind="stable")[: num_passages // 50]
    stale_NxE = series.passages_CxNxE[now - age]
    mixed_NxE = stale_NxE.copy()
    mixed_NxE[top] = series.passages_CxNxE[now, top]
    found = [best(series.queries_CxQxE[now], index) for index in (stale_NxE, mixed_NxE)]
    hits = [(ids[:, :, None] == fresh_CxQxK[now][:, None, :]).any(axis=1) for ids in found]
    shares = [np.isin(ids, top) for ids in (fresh_CxQxK[now], *found)]
    figures.append([part.mean() for part in (*hits, *shares)])
  stale, mixed, *shares = np.mean(figures, axis=0)
  return (
    f"index of {age} checkpoints before, 2 % of the rows replaced: recall {stale:.2f} to "
    f"{mixed:.2f}; their share of the fresh, stale and mixed top 5: "
    + ", ".join(f"{share:.0%}" for share in shares)
  )


def lines(series: Series, refreshes: list[int]) -> Iterator[str]:
  """Yields a table: a row for each strategy and length of a whole refresh."""
  if len(series.queries_CxQxE) < max(refreshes) + BLOCK:
    raise SystemExit(f"keep {max(refreshes) + BLOCK + 1} checkpoints or more, or lower --refresh")
  pairs = zip(series.queries_CxQxE, series.passages_CxNxE, strict=True)
  fresh_CxQxK = np.stack([best(queries, passages) for queries, passages in pairs])
  counts = np.sort(np.bincount(fresh_CxQxK.ravel(), minlength=series.passages_CxNxE.shape[1]))
  top = -(-len(counts) // 50)
  yield f"the 2 % of passages retrieved most get {counts[-top:].sum() / counts.sum():.1%} of all"
  for age in refreshes:
    yield mixture(series, fresh_CxQxK, age=age)
  yield "| whole refresh, checkpoints | strategy | recall | gain over whole, 95 % interval |"
  yield "|---|---|---|---|"
  for refresh in refreshes:
    whole_C = None
    for strategy in STRATEGIES:
      # From the first whole refresh on.
      found_C = np.array(list(recalls(series, fresh_CxQxK, strategy, refresh=refresh)))[refresh:]
      whole_C = found_C if whole_C is None else whole_C
      low, high = interval(found_C - whole_C)
      gain = f"{(found_C - whole_C).mean():+.4f} ({low:+.4f} to {high:+.4f})"
      yield f"| {refresh} | {strategy} | {found_C.mean():.4f} | {gain} |"


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--checkpoints", required=True)
  parser.add_argument("--corpus", required=True, help="training corpus or prepared examples")
  parser.add_argument("--passages", required=True)
  parser.add_argument("--batch_size", type=int, default=32)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--refresh", type=int, nargs="+", default=[3, 6, 12])
  parser.add_argument("--embeddings", help="file to keep the embeddings in")
  args = parser.parse_args()
  if args.embeddings and os.path.exists(args.embeddings):
    with np.load(args.embeddings, allow_pickle=False) as saved:
      series = Series(saved["passages"], saved["queries"])
  else:
    sources = args.checkpoints, args.corpus, args.passages
    series = embedded(*sources, batch_size=args.batch_size, seed=args.seed)
    if args.embeddings:
      np.savez(args.embeddings, passages=series.passages_CxNxE, queries=series.queries_CxQxE)
  for line in lines(series, args.refresh):
    print(line, flush=True)


if __name__ == "__main__":
  main()
