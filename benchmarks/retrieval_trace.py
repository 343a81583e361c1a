"""Time per step and bytes per query of the retrieval trace, with a flush at each checkpoint.

python benchmarks/retrieval_trace.py
"""

import argparse
import pathlib
import tempfile
import time
from types import SimpleNamespace

import numpy as np

from realm_jax.devices.datatypes import SearchResults
from realm_jax.training.retrieval_trace import TraceWriter

_PASSAGES = 13_000_000


def measured(*, batch_size: int, num_passages: int, num_steps: int, checkpoints: int) -> list[str]:
  """Returns a row of the table."""
  rng = np.random.default_rng(0)
  shape = (batch_size, num_passages)
  found = [
    SearchResults(rng.integers(0, _PASSAGES, shape).astype(np.int32), rng.random(shape, np.float32))
    for _ in range(num_steps)
  ]
  searched = SimpleNamespace(generation=1, training_step=5)
  with tempfile.TemporaryDirectory() as directory:
    trace = TraceWriter(directory, settings={}, step=0)
    adding, flushing = [], []
    for checkpoint in range(checkpoints):
      start = time.perf_counter()
      for step, results in enumerate(found, 1 + checkpoint * num_steps):
        trace.add(step, results, searched)
      added = time.perf_counter()
      trace.flush()
      adding.append(added - start)
      flushing.append(time.perf_counter() - added)
    size = sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*") if path.is_file())
  of_step = sorted((a + f) / num_steps for a, f in zip(adding, flushing, strict=True))
  return [
    f"{batch_size}",
    f"{num_passages}",
    f"{1e3 * of_step[0]:.3f} to {1e3 * of_step[-1]:.3f}",
    f"{1e3 * min(flushing):.0f} to {1e3 * max(flushing):.0f}",
    f"{size / (batch_size * num_steps * checkpoints):.0f}",
  ]


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_steps", type=int, default=500, help="between checkpoints")
  parser.add_argument("--checkpoints", type=int, default=5)
  args = parser.parse_args()
  print("| queries | passages | ms a step | ms a flush | bytes a query |\n|---|---|---|---|---|")
  for batch_size, num_passages in ((512, 8), (64, 8), (8, 3)):
    row = measured(batch_size=batch_size, num_passages=num_passages, **vars(args))
    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
  main()
