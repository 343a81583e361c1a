"""An own source of batches: reads again what an earlier run retrieved, without a search.

A run with `--retrieval_trace=true` keeps what each step read in `WORKDIR/retrievals`, for the same
losses again or another reader's. From Python, `pretrain(source=Replayed(trace), ...)`; in gin,

  from __gin__ import dynamic_registration
  from examples import replayed_batches
  from realm_jax.jobs.training import pretrain
  pretrain.pretrain.source = @replayed_batches.Replayed()
  replayed_batches.Replayed.trace = "runs/first/retrievals"
"""

import dataclasses

import realm_jax
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.training.retrieval_trace import Trace


@dataclasses.dataclass(frozen=True)
class Replayed:
  """Makes the source; `trace` is the directory of the earlier run's retrievals."""

  trace: str

  def settings(self, training: realm_jax.Pretraining) -> dict[str, str]:
    return {"trace": self.trace}  # a resumed run must have the same

  def open(self, source: RetrievedBatches, training: realm_jax.Pretraining):
    same = {"seed": training.run.seed, "num_passages": training.retrieval.num_passages}
    return ReplayedBatches(source, Trace(self.trace, settings=same))


class ReplayedBatches(realm_jax.BatchSource):
  """The masked queries of a training, each with the passages that an earlier run read it with."""

  def __init__(self, source: RetrievedBatches, trace: Trace):
    self.source, self.trace, self.step = source, trace, source.first_step

  def begin(self, params) -> None:
    self.queries, _ = next(self.source.queries)

  def finish(self) -> tuple:
    self.step += 1
    traced = self.trace[self.step]
    self.source.batch = self.source.retriever.gather(self.queries, traced.passages)
    return self.source.place(self.source.batch), {"index/generation": float(traced.generation)}

  def in_flight(self) -> dict:
    return self.source.in_flight()

  def resume(self, in_flight: dict):
    self.step += 1
    return self.source.resume(in_flight)

  def position(self) -> dict:
    return self.source.position()

  def restore(self, position: dict) -> None:
    self.source.restore(position)
