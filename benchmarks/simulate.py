"""How stale is the index, and what does a training cost? A simulation before chips are rented.

Trainer, checkpoints, builder, publication, loading and preemptions are events in time. Their
durations are what `realm plan` prints, or what a run has measured:

  python benchmarks/simulate.py --builder 16 64 128              # the paper's corpus, v3 to v6e
  python benchmarks/simulate.py --kinds v5e --millions 13 130 1300 --builder 64 512
  python benchmarks/simulate.py --kinds v4 --step=0.157 --embed=4720 --price=1.61
  python benchmarks/simulate.py --replay RUN/pretrain/ RUN/logs/build_index.log
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

_BUCKET = 1e9  # bytes a second that a host reads from a bucket or writes to it; an assumption
_CHECKPOINT_BYTES = 2.63e9  # the train step's arguments, by `realm plan`
_BYTES_OF_PASSAGE = 256 + 40  # 128 numbers in bfloat16, and a tree's codes
_BUILD_SECONDS = 50e-6  # of a core and a passage; 10 million of 64 numbers took 125 s on two
_CORES = 48  # of a builder's host, that build its part of the trees
_KEPT = 5  # checkpoints, and generations
_WIKIPEDIA = 13_353_718


class Slice(NamedTuple):
  """The trainer's devices as JAX counts them, and what `realm plan` says of the training.

  Attributes:
    of_chip: Devices of a chip; likewise of a host.
    price: Dollars of a chip and hour, the on-demand list price of docs/results/simulation.md.
    step: Seconds of a step.
    embed: Device-seconds to embed `_WIKIPEDIA` passages.
  """

  devices: int
  of_chip: int
  of_host: int
  price: float
  step: float
  embed: float


_SLICES = {  # of gin/experiments/realm_wikipedia_*.gin
  "v3": Slice(128, 2, 8, 2.00, 0.352, 21_110),
  "v4": Slice(64, 1, 4, 3.22, 0.157, 4_720),
  "v5e": Slice(64, 1, 4, 1.20, 0.220, 6_589),
  "v6e": Slice(64, 1, 4, 2.70, 0.105, 3_364),
}


class Durations(NamedTuple):
  """Seconds of what trainer and builder do.

  Attributes:
    save: From a step to its finished checkpoint, beside the next steps.
    embed: To embed the corpus; what is embedded when a builder is killed is kept.
    publish: To build and publish a generation.
    load: From the trainer's discovery of a generation to the swap.
    trainer_poll: Between looks for a generation; `builder_poll` for a checkpoint.
    restart: From a kill to the next step, or to the builder's next work.
  """

  step: float
  save: float
  embed: float
  publish: float
  load: float
  trainer_poll: float = 5.0
  builder_poll: float = 5.0
  restart: float = 600.0


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What became of a training: the staleness of each step, and its seconds."""

  staleness: np.ndarray
  seconds: float
  goodput: float
  swaps: int


class _Builder:
  """Works on the newest checkpoint that is there."""

  def __init__(self, durations: Durations):
    self._durations = durations
    self.published: list[tuple[float, int]] = []
    self._free, self._built, self._work = 0.0, 0, None

  def advance(self, now: float, saved: list[tuple[float, int]]) -> None:
    """Does everything that ends before `now`, given (time, step) of the checkpoints."""
    while True:
      if self._work is None:
        newer = [(at, step) for at, step in saved if step > self._built]
        if not newer:
          return
        start = _next_look(self._free, newer[0][0], self._durations.builder_poll)
        if start > now:
          return
        step = max(step for at, step in newer if at <= start)
        self._work = (start + self._durations.embed + self._durations.publish, step)
      if self._work[0] > now:
        return
      self.published = [*self.published, self._work][-_KEPT:]
      (self._free, self._built), self._work = self._work, None

  def kill(self, now: float) -> None:
    if self._work is not None:
      self._work = (self._work[0] + self._durations.restart, self._work[1])
    self._free = max(self._free, now + self._durations.restart)


def _next_look(last: float, event: float, poll: float) -> float:
  """Returns the time of the first look, every `poll` seconds after the last, that sees an event."""
  return last + max(0, math.ceil((event - last) / poll)) * poll


def simulate(
  durations: Durations,
  *,
  num_steps: int,
  checkpoint_every: int,
  trainer_kills: Iterable[float] = (),
  builder_kills: Iterable[float] = (),
) -> Outcome:
  """Runs a training from generation 0, with kills at rising times."""
  now, step, current, swaps, looked, loading = 0.0, 0, 0, 0, 0.0, None
  saved, builder, staleness = [], _Builder(durations), np.zeros(num_steps, int)
  of_trainer, of_builder = iter(trainer_kills), iter(builder_kills)
  kill_trainer, kill_builder = next(of_trainer, math.inf), next(of_builder, math.inf)
  while step < num_steps:
    while kill_builder <= now:
      builder.advance(kill_builder, saved)
      builder.kill(kill_builder)
      kill_builder = next(of_builder, math.inf)
    if kill_trainer <= now:
      saved = [(at, s) for at, s in saved if at <= kill_trainer]
      step, now = max((s for _, s in saved), default=0), now + durations.restart
      builder.advance(now, saved)
      newest = max((s for _, s in builder.published), default=0)
      swaps += newest > current
      current, loading, looked = max(current, newest), None, now
      while kill_trainer <= now:
        kill_trainer = next(of_trainer, math.inf)
    builder.advance(now, saved)
    newer = [(at, s) for at, s in builder.published if s > current]
    if loading is None and newer:
      found = _next_look(looked, newer[0][0], durations.trainer_poll)
      loading = (found + durations.load, max(s for at, s in newer if at <= found))
    if loading is not None and loading[0] <= now:
      (looked, current), loading, swaps = loading, None, swaps + 1
    staleness[step] = step - current
    step, now = step + 1, now + durations.step
    if step % checkpoint_every == 0:
      saved = [*saved, (now + durations.save, step)][-_KEPT:]
  return Outcome(staleness, now, num_steps * durations.step / now, swaps)


def preemptions(hours: float, *, seed: int) -> Iterator[float]:
  """Yields times of preemptions that come once in so many hours; none if it is 0."""
  draw, now = random.Random(seed), 0.0
  while hours:
    now += draw.expovariate(1 / (3600 * hours))
    yield now


def of_corpus(kind: Slice, *, num_passages: int, builder: int) -> Durations:
  """Returns the durations of a training with a builder of so many devices."""
  index, hosts = num_passages * _BYTES_OF_PASSAGE, max(1, builder // kind.of_host)
  fetch = _CHECKPOINT_BYTES / _BUCKET
  return Durations(
    step=kind.step,
    save=fetch,
    embed=kind.embed * num_passages / _WIKIPEDIA / builder + fetch,
    publish=(num_passages * _BUILD_SECONDS / _CORES + index / _BUCKET) / hosts,
    load=index / _BUCKET,
  )


def replay(trainer: pathlib.Path, log: pathlib.Path) -> tuple[Outcome, Outcome]:
  """Returns what became of a run, and of its simulation from the times that it measured.

  A pause of more than ten times the usual is taken for a kill, after which the run resumed.
  """
  rows, swaps = (
    [json.loads(line) for line in (trainer / name).read_text().splitlines()]
    for name in ("metrics.jsonl", "swaps.jsonl")
  )
  if len(swaps) < 2 or len(rows) < 2:
    raise SystemExit(f"{trainer} has too few steps and generations to replay")
  steps, times = (np.array([row[name] for row in rows], float) for name in ("step", "seconds"))
  taken, done = np.diff(times), np.diff(steps)
  paused = taken / done > 10 * np.median(taken / done)
  step = taken[~paused].sum() / done[~paused].sum()
  began, num_steps = times[0] - steps[0] * step, int(steps[-1])
  built = re.findall(r"embedded in ([\d.]+) s, .*? published in ([\d.]+) s", log.read_text())
  embed, publish = np.mean(np.array(built[1:], float), axis=0)  # generation 0 compiled
  measured = Durations(
    step=step,
    save=0.0,
    embed=embed,
    publish=publish,
    load=np.median([swap["seconds"] - swap["created"] for swap in swaps[1:]]),
    trainer_poll=0.01,  # part of the time to load
    builder_poll=0.5,
    restart=(taken - done * step)[paused].mean() if paused.any() else 0.0,
  )
  used = [(swap["step"], swap["training_step"]) for swap in swaps]
  staleness = [
    np.arange(first, end) - of
    for (first, of), (end, _) in itertools.pairwise([*used, (num_steps, 0)])
  ]
  seconds = times[-1] - began
  real = Outcome(np.concatenate(staleness), seconds, num_steps * step / seconds, len(swaps) - 1)
  every, kills = used[1][1], times[:-1][paused] - began
  return real, simulate(measured, num_steps=num_steps, checkpoint_every=every, trainer_kills=kills)


def _row(name: str, kind: Slice, num_passages: int, builder: int, args) -> tuple[str, float]:
  """Returns the line of a builder, and the staleness that 95 % of the steps keep."""
  durations = of_corpus(kind, num_passages=num_passages, builder=builder)
  outcome = simulate(
    durations,
    num_steps=args.num_steps,
    checkpoint_every=args.checkpoint_every,
    trainer_kills=preemptions(args.preempt_hours, seed=0),
    builder_kills=preemptions(args.preempt_hours, seed=1),
  )
  hours, hosts = outcome.seconds / 3600, kind.devices // kind.of_host
  index, p95 = num_passages * _BYTES_OF_PASSAGE, np.percentile(outcome.staleness, 95)
  columns = (
    f"{name}, {kind.devices}",
    f"{num_passages / 1e6:,.0f}",
    f"{builder}",
    f"{durations.embed + durations.publish:,.0f}",
    f"{2 * index / 2**30:,.1f}",
    f"{2 * index / 2**30 / hosts:,.1f}",
    f"{hosts * index / 1e9:,.0f}",
    f"{durations.load:,.0f}",
    f"{outcome.staleness.mean():,.0f}",
    f"{p95:,.0f}",
    f"{outcome.goodput:.3f}",
    f"{hours:.1f}",
    f"{hours * (kind.devices + builder) / kind.of_chip * kind.price:,.0f}",
  )
  return f"| {' | '.join(columns)} |", p95


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--replay", type=pathlib.Path, nargs=2, help="directory and builder's log")
  parser.add_argument("--num_steps", type=int, default=200_000)
  parser.add_argument("--checkpoint_every", type=int, default=100)
  parser.add_argument("--stale", type=int, default=500, help="steps that 95 %% of the steps keep")
  parser.add_argument("--preempt_hours", type=float, default=0.0, help="mean; 0 is never")
  parser.add_argument("--kinds", nargs="*", choices=_SLICES, default=[*_SLICES])
  parser.add_argument("--millions", type=float, nargs="*", default=[_WIKIPEDIA / 1e6])
  parser.add_argument("--builder", type=int, nargs="*", default=[16], help="devices")
  for field in ("price", "step", "embed"):
    parser.add_argument(f"--{field}", type=float, help="instead of the slice's own")
  args = parser.parse_args()
  if args.replay:
    for name, found in zip(("measured", "simulated"), replay(*args.replay), strict=True):
      p95 = np.percentile(found.staleness, 95)
      stale = f"steps stale {found.staleness.mean():.1f}, p95 {p95:.0f}"
      print(f"{name}: {stale}; {found.swaps} generations, goodput {found.goodput:.3f}")
    return
  names = "trainer, million passages, builder, a generation s, two in memory GiB, of a host GiB"
  names += ", read GB, load s, stale mean, stale p95, goodput, hours, $"
  print("|", names.replace(", ", " | "), "|\n|" + "---|" * 13)
  given = {f: v for f in ("price", "step", "embed") if (v := getattr(args, f)) is not None}
  for name, millions in itertools.product(args.kinds, args.millions):
    kind, num_passages = _SLICES[name]._replace(**given), round(millions * 1e6)
    for builder in args.builder:
      print(_row(name, kind, num_passages, builder, args)[0])
    rows = (_row(name, kind, num_passages, 2**n, args) for n in range(3, 13))
    fewest = next((row for row, p95 in rows if p95 <= args.stale), None)
    print(fewest or f"| {name} | {millions:,.0f} | up to 4,096 do not keep {args.stale} steps |")


if __name__ == "__main__":
  main()
