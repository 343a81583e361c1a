"""Training steps with live ScaNN retrieval against the same steps with given passages, in one run.

Both run through the training loop with the demo's model. The given batches are those that a live
run has retrieved before, from the same queries. The two take turns for a few steps at a time, so
that what else the machine does falls on both alike.

  python benchmarks/retrieval_step.py --output=retrieval_step.json
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time

import jax
import numpy as np
from demo_training import BATCH_SIZE, RETRIEVAL, DemoTraining, random_queries, write_store
from search import clustered_embeddings

from realm_jax.index import assembly, recall
from realm_jax.index.searcher import SearcherConfig, own_part
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration, RefreshConfig
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.training import metric_writers, train_loop


class OneGeneration:
  """Generation 0, which is in memory already."""

  def __init__(self, searcher):
    self._loaded = LoadedGeneration(
      generation=0, searcher=searcher, training_step=0, created=time.time()
    )

  def newest(self) -> int:
    return 0

  def load(self, generation: int) -> LoadedGeneration:
    return self._loaded


def build_searcher(num_passages: int):
  """Returns a ScaNN searcher with the settings derived for the number of passages."""
  embeddings, queries = clustered_embeddings(num_passages=num_passages, size=128, num_queries=512)
  config = SearcherConfig(kind="scann").for_corpus(num_passages)
  shards = assembly.build_shards(embeddings, config=config)
  if config.is_approximate(num_passages):
    part = own_part(num_passages, num_shards=config.num_shards, index=0, count=1)
    config, _ = recall.reach_target(
      config, shards, embeddings_NxE=embeddings, queries_BxE=queries, part=part
    )
  return assembly.assemble(shards, config=config)


class Turns:
  """Runs a few steps of one kind at a time, each kind with a state and a source of its own."""

  def __init__(self, training: DemoTraining):
    self._training = training
    self._writer = metric_writers.make_writer("", step=0, first_process=False)
    self._runs = {}

  def add(self, name: str, source: train_loop.BatchSource) -> None:
    state = self._training.new_state()
    source.begin(state.params)
    batch, _ = source.finish()
    self._runs[name] = state, batch, source

  def seconds_per_step(self, name: str, *, num_steps: int) -> float:
    """Runs steps, the last one to its end, and returns the mean time of one."""
    state, batch, source = self._runs[name]
    recorder = _LastBatch(source)
    first = int(state.step)
    start = time.perf_counter()
    state = train_loop.train(
      state,
      batch,
      train_step=self._training.train_step,
      source=recorder,
      num_steps=first + num_steps,
      hooks=[],
      writer=self._writer,
      log_every=10**9,
      stop=lambda: False,
    )
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - start) / num_steps
    self._runs[name] = state, recorder.batch, source
    return seconds


class _LastBatch:
  """Passes calls on and keeps the batch that the next step will take."""

  def __init__(self, source: train_loop.BatchSource):
    self._source = source
    self.in_flight, self.resume = source.in_flight, source.resume
    self.batch = None

  def begin(self, params) -> None:
    self._source.begin(params)

  def finish(self):
    self.batch, figures = self._source.finish()
    return self.batch, figures


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, default=100_000)
  parser.add_argument("--steps", type=int, default=10, help="steps in a row")
  parser.add_argument("--repetitions", type=int, default=15)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  with tempfile.TemporaryDirectory() as directory:
    lengths = np.random.default_rng(0).integers(12, RETRIEVAL.passage_length + 1, args.num_passages)
    store = write_store(os.path.join(directory, "passages"), lengths)
    training = DemoTraining()
    retriever = training.retriever(searcher=build_searcher(args.num_passages), store=store)
    refresher = IndexRefresher(
      OneGeneration(retriever.searcher), config=RefreshConfig(), watch=False
    )
    refresher.first(wanted=0, stop=lambda: False)

    def queries():
      return random_queries(num_passages=args.num_passages)

    params = training.new_state().params
    total = (args.repetitions + 1) * args.steps + 1
    prepared = [
      retriever.finish(retriever.begin(params, batch))[0]
      for batch, _ in itertools.islice(queries(), total)
    ]
    distinct = np.mean([len(np.unique(batch.passage_ids_BxK)) - 1 for batch in prepared])

    turns = Turns(training)
    turns.add("given", train_loop.PlainBatches(iter(prepared), place=training.place))
    live = RetrievedBatches(
      iter(list(itertools.islice(queries(), total))),
      retriever=retriever,
      refresher=refresher,
      place=training.place,
      first_step=0,
      on_swap=lambda step, loaded: None,
      stop=lambda: False,
    )
    turns.add("live", live)
    seconds = {"given": [], "live": []}
    for repetition in range(args.repetitions + 1):
      for name in ("given", "live") if repetition % 2 else ("live", "given"):
        measured = turns.seconds_per_step(name, num_steps=args.steps)
        if repetition:  # the first one compiles and warms up
          seconds[name].append(measured)

    # The three parts of a retrieval, without a step to hide behind.
    parts = [
      retriever.finish(retriever.begin(params, batch))[1]
      for batch, _ in itertools.islice(queries(), 30)
    ]

  ratios = [live / given for live, given in zip(seconds["live"], seconds["given"], strict=True)]
  result = {
    "cores": os.cpu_count(),
    "settings": vars(args),
    "step_seconds_given": round(statistics.median(seconds["given"]), 5),
    "step_seconds_live": round(statistics.median(seconds["live"]), 5),
    "ratio": round(statistics.median(ratios), 3),
    "ratio_quartiles": [round(float(q), 3) for q in np.quantile(ratios, (0.25, 0.75))],
    "query_embedding_seconds": round(
      statistics.median(p["throughput/query_embedding_wait_seconds"] for p in parts), 5
    ),
    "search_seconds": round(statistics.median(p["throughput/search_seconds"] for p in parts), 5),
    "gather_seconds": round(statistics.median(p["throughput/gather_seconds"] for p in parts), 5),
    "distinct_passages_per_batch": round(float(distinct), 1),
  }
  print(
    f"{args.num_passages} passages, batch {BATCH_SIZE}, {RETRIEVAL.num_passages} passages a query"
  )
  for name in ("given", "live"):
    print(f"step with {name:5} passages {1000 * result[f'step_seconds_{name}']:8.1f} ms")
  low, high = result["ratio_quartiles"]
  print(f"live / given {result['ratio']:.3f} (quartiles {low:.3f} to {high:.3f})")
  print(
    f"alone: query embedding {1000 * result['query_embedding_seconds']:.1f} ms, search"
    f" {1000 * result['search_seconds']:.1f} ms, gather {1000 * result['gather_seconds']:.1f} ms;"
    f" {distinct:.0f} different passages a batch"
  )
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()
