"""What a new index generation costs: publication, loading, and the pause of a running training.

The demo's training runs with live retrieval while a watcher thread loads generations beside it, as
in pre-training; steps without a load are measured between the loads. A gap is the time between the
ends of two steps as the host sees them. ScaNN holds the interpreter lock while it loads, so a
trainer loads it in another process; `--no-in_subprocess` loads in the same. How long a thread waits
meanwhile, one tells that does nothing but look at the clock.

  python benchmarks/generation_swap.py --output=generation_swap.json
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import threading
import time

import ml_dtypes
import numpy as np
from demo_training import RETRIEVAL, DemoTraining, random_queries, write_store
from search import clustered_embeddings

from realm_jax.index import assembly, generations
from realm_jax.index.searcher import TREES, CorpusSearcherConfig, SearcherConfig
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration, RefreshConfig
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.training import metric_writers, train_loop

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_GENERATIONS = 2  # they are loaded in turn under rising numbers


class AnnouncedGenerations:
  """Published generations that the watcher sees when told, under ever higher numbers."""

  def __init__(self, root: str, *, in_subprocess: bool):
    self._root = root
    self._in_subprocess = in_subprocess
    self._announced = 0
    self.loads = []

  def announce(self) -> None:
    self._announced += 1

  def newest(self) -> int:
    return self._announced

  def load(self, generation: int) -> LoadedGeneration:
    start = time.perf_counter()
    searcher = assembly.load_searcher(
      self._root, generation % _GENERATIONS, in_subprocess=self._in_subprocess
    )
    self.loads.append((start, time.perf_counter()))
    return LoadedGeneration(
      generation=generation, searcher=searcher, training_step=0, created=time.time()
    )


def publish(root: str, embeddings: np.ndarray, *, kind: str, num_shards: int) -> float:
  """Builds and publishes the generations; returns the median seconds of one publication."""
  config = SearcherConfig(kind=kind, num_shards=num_shards).for_corpus(len(embeddings))
  return publish_shards(root, assembly.build_shards(embeddings, config=config), config=config)


def publish_shards(root: str, shards, *, config: CorpusSearcherConfig) -> float:
  """Publishes the generations; returns the median seconds of one publication."""
  embeddings = [shard["embeddings"] for shard in shards]
  manifest = generations.Manifest(
    training_step=0,
    parameters_digest="benchmark",
    corpus_fingerprint="benchmark",
    vocabulary_digest="benchmark",
    num_passages=sum(map(len, embeddings)),
    embedding_size=embeddings[0].shape[1],
    dtype=embeddings[0].dtype.name,
    searcher=dataclasses.asdict(config),
  )
  seconds = []
  for generation in range(_GENERATIONS):
    start = time.perf_counter()
    generations.publish(root, generation, shards, manifest=manifest, keep=_GENERATIONS)
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds)


def load_alone(root: str, *, repetitions: int, in_subprocess: bool) -> tuple[float, float]:
  """Returns the median seconds of a load, and the median longest time that a thread waited."""
  seconds, held = [], []
  for repetition in range(repetitions):
    done = threading.Event()
    longest = [0.0]

    def watch(done=done, longest=longest):
      last = time.perf_counter()
      while not done.is_set():
        time.sleep(0)
        now = time.perf_counter()
        longest[0], last = max(longest[0], now - last), now

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    assembly.load_searcher(root, repetition % _GENERATIONS, in_subprocess=in_subprocess)
    seconds.append(time.perf_counter() - start)
    done.set()
    watcher.join()
    held.append(longest[0])
  return statistics.median(seconds), statistics.median(held)


def train_beside_loads(
  training: DemoTraining,
  published: AnnouncedGenerations,
  store,
  *,
  loads: int,
  quiet_steps: int,
) -> dict:
  """Trains while `loads` generations are loaded, with quiet steps before each."""
  config = RefreshConfig(poll_seconds=0.01)
  ends = []
  swap_seconds = []  # the release of the old generation included
  with IndexRefresher(published, config=config) as refresher:
    refresher.first(stop=lambda: False)
    source = RetrievedBatches(
      random_queries(num_passages=len(store)),
      retriever=training.retriever(searcher=refresher.current.searcher, store=store),
      refresher=refresher,
      place=training.place,
      first_step=0,
      on_swap=lambda step, loaded: swap_seconds.append(time.perf_counter() - ends[-1]),
      stop=lambda: False,
    )
    swapped_at = [10]  # steps to warm up before the first count of quiet steps

    def hook(step: int, state) -> None:
      ends.append(time.perf_counter())
      if len(swap_seconds) > len(swapped_at) - 1:
        swapped_at.append(step)
      if step == swapped_at[-1] + quiet_steps and len(swapped_at) <= loads:
        published.announce()

    state = training.new_state()
    source.begin(state.params)
    batch, _ = source.finish()
    train_loop.train(
      state,
      batch,
      train_step=training.train_step,
      source=source,
      num_steps=10**6,
      hooks=[hook],
      writer=metric_writers.make_writer("", step=0, first_process=False),
      log_every=10**6,
      stop=lambda: len(swapped_at) > loads and len(ends) >= swapped_at[-1] + quiet_steps,
    )

  gaps = {"quiet": [], "loading": []}
  longest = {"quiet": [], "loading": []}
  spans = published.loads[1:]  # the first was before the training
  borders = list(zip(ends[10:], ends[11:], strict=False))
  for number, (load_start, load_end) in enumerate(spans):
    earliest = spans[number - 1][1] if number else 0.0
    quiet = [b - a for a, b in borders if a > earliest and b < load_start]
    loading = [b - a for a, b in borders if b > load_start and a < load_end]
    for name, of_load in (("quiet", quiet), ("loading", loading)):
      gaps[name] += of_load
      longest[name].append(max(of_load))
  pauses = [max(0.0, value - statistics.median(gaps["quiet"])) for value in longest["loading"]]
  return {
    "loads": len(spans),
    "load_seconds_beside": statistics.median(end - start for start, end in spans),
    "swap_seconds": max(swap_seconds),
    **{f"step_p50_{name}": statistics.median(values) for name, values in gaps.items()},
    **{f"step_longest_{name}": statistics.median(values) for name, values in longest.items()},
    "pause_median": statistics.median(pauses),
    "pause_longest": max(pauses),
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, nargs="+", default=[20_000, 100_000])
  parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
  parser.add_argument("--kind", choices=TREES, default="scann")
  parser.add_argument("--num_shards", type=int, default=1)
  parser.add_argument("--in_subprocess", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--loads", type=int, default=5)
  parser.add_argument("--quiet_steps", type=int, default=20)
  parser.add_argument("--switch_interval", type=float, default=sys.getswitchinterval())
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  sys.setswitchinterval(args.switch_interval)
  training = DemoTraining()
  rows = []
  for num_passages in args.num_passages:
    embeddings, _ = clustered_embeddings(num_passages=num_passages, size=128, num_queries=1)
    lengths = np.random.default_rng(0).integers(12, RETRIEVAL.passage_length + 1, num_passages)
    for dtype in args.dtypes:
      with tempfile.TemporaryDirectory() as directory:
        root = os.path.join(directory, "index")
        store = write_store(os.path.join(directory, "passages"), lengths)
        publish_seconds = publish(
          root, embeddings.astype(DTYPES[dtype]), kind=args.kind, num_shards=args.num_shards
        )
        load_seconds, held_seconds = load_alone(
          root, repetitions=args.loads, in_subprocess=args.in_subprocess
        )
        published = AnnouncedGenerations(root, in_subprocess=args.in_subprocess)
        beside = train_beside_loads(
          training, published, store, loads=args.loads, quiet_steps=args.quiet_steps
        )
      row = {
        "publish_seconds": publish_seconds,
        "load_seconds": load_seconds,
        "longest_wait_seconds": held_seconds,
        **beside,
      }
      rounded = {name: round(value, 5) for name, value in row.items()}
      rows.append({"num_passages": num_passages, "dtype": dtype, **rounded})

  print(f"{args.num_shards} shard(s); milliseconds; steps: median, and the longest of a load's")
  print(
    f"{'passages':>8} {'dtype':>8} {'publish':>8} {'load':>7} {'beside':>7} {'wait':>6}"
    f" {'quiet steps':>13} {'while loading':>13} {'pause':>6} {'worst':>6} {'swap':>6}"
  )
  for row in rows:
    ms = {name: 1000 * value for name, value in row.items() if isinstance(value, float)}
    quiet = f"{ms['step_p50_quiet']:.0f}, {ms['step_longest_quiet']:.0f}"
    loading = f"{ms['step_p50_loading']:.0f}, {ms['step_longest_loading']:.0f}"
    print(
      f"{row['num_passages']:8} {row['dtype']:>8} {ms['publish_seconds']:8.0f}"
      f" {ms['load_seconds']:7.0f} {ms['load_seconds_beside']:7.0f}"
      f" {ms['longest_wait_seconds']:6.0f} {quiet:>13} {loading:>13} {ms['pause_median']:6.0f}"
      f" {ms['pause_longest']:6.0f} {ms['swap_seconds']:6.2f}"
    )
  if args.output:
    with open(args.output, "w") as file:
      json.dump({"cores": os.cpu_count(), "settings": vars(args), "rows": rows}, file, indent=2)


if __name__ == "__main__":
  main()
