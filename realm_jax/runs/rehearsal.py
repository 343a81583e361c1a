"""Pairs that the dual encoder goes on learning from while it is pre-trained.

Masked sentences alone make a retriever forget how to match words, which pairs have taught it
(`docs/real_text.md`). A step with both keeps the one and learns the other.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.data.batches import Features
from realm_jax.datatypes import RetrievedBatch
from realm_jax.runs.example_sources import Examples, PairData, pair_examples
from realm_jax.training.train_loop import BatchSource

_PREFIX = "pairs."


@dataclasses.dataclass(frozen=True, kw_only=True)
class RehearsalConfig:
  """How many pairs each step of a pre-training has, and what they weigh.

  Attributes:
    num_pairs: Pairs of a step; 0 for none.
    hard_negatives: Hard negatives drawn per pair.
    weight: Weight of their contrastive loss beside the loss of the masked queries.
  """

  num_pairs: int = 0
  hard_negatives: int = 1
  weight: float = 1.0

  def __post_init__(self):
    if self.num_pairs < 0 or self.hard_negatives < 0 or self.weight <= 0:
      raise ValueError(
        f"rehearsal.num_pairs={self.num_pairs}, hard_negatives={self.hard_negatives} and "
        f"weight={self.weight}; give counts of at least 0 and a weight above 0"
      )

  def check(self, *, pairs: str | None, pairs_passages: str | None) -> None:
    """Checks that pairs are given if and only if there is room for them.

    Raises:
      ValueError: If not.
    """
    given = {"pairs": pairs, "pairs_passages": pairs_passages}
    if self.num_pairs and None in given.values():
      missing = " and ".join(f"--{name}" for name, value in given.items() if value is None)
      raise ValueError(
        f"rehearsal.num_pairs={self.num_pairs}, but no pairs; give {missing}, the output of "
        "`realm prepare_pairs` and the corpus that they were mined from"
      )
    if useless := [f"--{k}={v}" for k, v in given.items() if v is not None and not self.num_pairs]:
      raise ValueError(
        f"{' and '.join(useless)} with rehearsal.num_pairs=0: no step has pairs; give "
        "--rehearsal.num_pairs, or omit them"
      )

  def examples(
    self, pairs: str, pairs_passages: str, *, query_length: int, passage_length: int
  ) -> Examples:
    """Returns the pairs as examples, with the lengths of the masked queries and passages."""
    data = PairData(
      pairs="recurring_spans",
      batch_size=self.num_pairs,
      query_length=query_length,
      passage_length=passage_length,
      hard_negatives=self.hard_negatives,
    )
    return pair_examples(data, source=pairs, store=PassageStore(pairs_passages))


class JoinedStreams:
  """The positions of masked queries and of the pairs beside them, as one input."""

  def __init__(self, queries: batches.Streams, pairs: batches.Streams):
    self._queries, self._pairs = queries, pairs

  def position(self) -> Features:
    """Returns the positions of both."""
    return {**self._queries.position(), **_prefixed(self._pairs.position())}

  def restore(self, position: Features) -> None:
    """Continues both from saved positions."""
    of_queries, of_pairs = _divided(position)
    self._queries.restore(of_queries)
    self._pairs.restore(of_pairs)


@dataclasses.dataclass(eq=False, kw_only=True)
class RehearsedBatches:
  """A source of `RetrievedBatch`es, each with the pairs of its step.

  Attributes:
    source: Provides the batches.
    pairs: Yields the pairs of each step.
  """

  source: Any
  pairs: Iterator[Features]
  place: Callable[[Any], Any]

  @property
  def batch(self) -> RetrievedBatch:
    """The next step's batch without its pairs, on the host."""
    return self.source.batch

  def begin(self, params) -> None:
    """Begins the next batch; see `BatchSource`."""
    self._rows = next(self.pairs)
    self.source.begin(params)

  def finish(self) -> tuple[RetrievedBatch, dict[str, float]]:
    """Returns the batch with its pairs, and metrics."""
    batch, figures = self.source.finish()
    return self._with_pairs(batch), figures

  def in_flight(self) -> dict:
    """Returns numpy arrays from which the next step's batch can be restored."""
    return {**self.source.in_flight(), **_prefixed(self._rows)}

  def resume(self, in_flight: dict) -> RetrievedBatch:
    """Restores the batch that a checkpoint had in flight."""
    of_queries, self._rows = _divided(in_flight)
    return self._with_pairs(self.source.resume(of_queries))

  def _with_pairs(self, batch: RetrievedBatch) -> RetrievedBatch:
    return dataclasses.replace(batch, pairs=self.place(self._rows))


def rehearsed(
  source: BatchSource, pairs: batches.Streams | None, *, place: Callable[[Any], Any]
) -> BatchSource:
  """Returns the source, with pairs if there are any."""
  return source if pairs is None else RehearsedBatches(source=source, pairs=pairs, place=place)


def _prefixed(features: Features) -> Features:
  return {_PREFIX + name: rows for name, rows in features.items()}


def _divided(features: Features) -> tuple[Features, Features]:
  """Returns what is of the queries, and what is of the pairs, without their prefix."""
  of_pairs = {k.removeprefix(_PREFIX): v for k, v in features.items() if k.startswith(_PREFIX)}
  return {k: v for k, v in features.items() if not k.startswith(_PREFIX)}, of_pairs
