"""An own source of batches: what an earlier run retrieved is read again, without an index.

A run with `--retrieval_trace=true` keeps the passages of every step. Read again in the same order
they give the same losses, or those of another learning rate or reader on the same passages.
"""

from collections.abc import Iterator
from typing import Any

import realm_jax
from realm_jax import processes
from realm_jax.data import batches
from realm_jax.datatypes import MaskedQueries
from realm_jax.retrieval.retriever import Gatherer
from realm_jax.runs.example_sources import Examples
from realm_jax.runs.retrieval_trace import Trace
from realm_jax.training.metric_writers import JsonLinesWriter


class ReplayedBatches(realm_jax.BatchSource):
  """Masked queries, each with the passages that an earlier run read it with."""

  def __init__(self, queries: Iterator[MaskedQueries], trace: Trace, gatherer: Gatherer, sharding):
    self.queries, self.trace, self.gatherer, self.sharding = queries, trace, gatherer, sharding
    self.step = 0

  def begin(self, params) -> None:
    self.begun = next(self.queries)

  def finish(self) -> tuple[Any, dict[str, float]]:
    traced = self.trace[self.step + 1]
    batch = self.gatherer.gather(self.begun, traced.passages)
    return self._placed(batch), {"index/generation": float(traced.generation)}

  def in_flight(self) -> dict:
    return self.gatherer.in_flight(self.batch)

  def resume(self, in_flight: dict) -> Any:
    return self._placed(self.gatherer.resume(in_flight))

  def _placed(self, batch):
    self.step, self.batch = self.step + 1, batch
    return processes.place(batch, self.sharding)


def replay(workdir, training: realm_jax.Pretraining, *, corpus: str, passages: str, trace: str):
  """Trains a new model on the trace of a run, `WORKDIR/retrievals`; writes `metrics.jsonl`."""
  store, program = realm_jax.PassageStore(passages), training.program()
  examples = Examples(data=training.data, source=corpus, vocabulary=f"{passages}/vocabulary")
  source = ReplayedBatches(
    map(batches.masked_queries, examples.streams(seed=training.run.seed)),
    Trace(trace, settings={"corpus_fingerprint": store.fingerprint}),
    Gatherer(store=store, config=training.retrieval),
    program.batch_sharding,
  )
  source.begin(None)
  settings = {"num_steps": training.run.num_steps, "log_every": 1, "hooks": []}
  settings |= {"writer": JsonLinesWriter(workdir, step=0), "stop": lambda: False}
  step, first = program.train_step, source.finish()[0]
  return realm_jax.train(program.new_state(), first, train_step=step, source=source, **settings)
