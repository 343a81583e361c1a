"""Mined pairs with the masked queries of each step, for a `Contrastive` term of the objective.

Masked sentences alone make a retriever forget how to match words, which pairs have taught it
(`docs/real_text.md`). A step with both keeps the one and learns the other.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.data.batches import Features
from realm_jax.devices.datatypes import RetrievedBatch
from realm_jax.foundations import choices
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.runs.example_sources import Examples, PairData, pair_examples
from realm_jax.runs.pretraining import Pretraining
from realm_jax.training.train_loop import BatchSource

_PREFIX = "pairs."


class SourceFactory(Protocol):
  """Makes the source of a pre-training's batches from the one that retrieves passages."""

  def settings(self, training: Pretraining) -> Mapping[str, Any]:
    """Returns what determines its batches, by name; a resumed run must have the same.

    Raises:
      ValueError: If it does not fit the training.
    """
    ...

  def open(self, source: RetrievedBatches, training: Pretraining) -> BatchSource:
    """Returns the source of the batches."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paired:
  """Retrieved batches, each with pairs.

  Attributes:
    pairs: Directory of pairs from `realm prepare_pairs`.
    passages: Directory of the corpus that they were mined from.
    num_pairs: Pairs of a step.
    hard_negatives: Hard negatives drawn per pair.
  """

  pairs: str
  passages: str
  num_pairs: int = 64
  hard_negatives: int = 1

  def __post_init__(self):
    choices.check_counts(self, "num_pairs")

  def settings(self, training: Pretraining) -> Mapping[str, Any]:
    if not any(isinstance(term, Contrastive) for _, term in training.objective.weighted_terms()):
      raise ValueError(
        f"pairs={self.pairs} without a Contrastive term of the objective: nothing learns from them"
      )
    examples = self._examples(training)
    examples.streams(seed=training.run.seed)  # fails before anything is waited for
    settings = examples.batch_settings(seed=training.run.seed)
    return {_PREFIX + name: value for name, value in settings.items()}

  def open(self, source: RetrievedBatches, training: Pretraining) -> BatchSource:
    return _PairedBatches(source, self._examples(training).streams(seed=training.run.seed))

  def _examples(self, training: Pretraining) -> Examples:
    data = PairData(
      pairs="recurring_spans",
      batch_size=self.num_pairs,
      query_length=training.data.query_length,
      passage_length=training.retrieval.passage_length,
      hard_negatives=self.hard_negatives,
    )
    return pair_examples(data, source=self.pairs, store=PassageStore(self.passages))


@dataclasses.dataclass(eq=False)
class _PairedBatches:
  """A source of `RetrievedBatch`es with pairs."""

  source: RetrievedBatches
  pairs: batches.Streams

  def begin(self, params) -> None:
    self._rows = next(self.pairs)
    self.source.begin(params)

  def finish(self) -> tuple[RetrievedBatch, dict[str, float]]:
    batch, figures = self.source.finish()
    return self._with_pairs(batch), figures

  def in_flight(self) -> Features:
    return {**self.source.in_flight(), **_prefixed(self._rows)}

  def resume(self, in_flight: Features) -> RetrievedBatch:
    of_queries, self._rows = _divided(in_flight)
    return self._with_pairs(self.source.resume(of_queries))

  def position(self) -> Features:
    return {**self.source.position(), **_prefixed(self.pairs.position())}

  def restore(self, position: Features) -> None:
    of_queries, of_pairs = _divided(position)
    self.source.restore(of_queries)
    self.pairs.restore(of_pairs)

  def _with_pairs(self, batch: RetrievedBatch) -> RetrievedBatch:
    return dataclasses.replace(batch, pairs=self.source.place(self._rows))


def _prefixed(features: Features) -> Features:
  return {_PREFIX + name: rows for name, rows in features.items()}


def _divided(features: Features) -> tuple[Features, Features]:
  """Returns what is of the queries, and what is of the pairs, without their prefix."""
  of_pairs = {k.removeprefix(_PREFIX): v for k, v in features.items() if k.startswith(_PREFIX)}
  return {k: v for k, v in features.items() if not k.startswith(_PREFIX)}, of_pairs
