"""The retriever: finds the passages to read with masked queries.

The index may be stale, because it only selects passages; the training step computes their scores
afresh.
"""

import dataclasses
from typing import Annotated, Literal

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import (
  MISSING_PASSAGE_ID,
  NULL_PASSAGE_ID,
  MaskedQueries,
  RetrievedBatch,
  SearchResults,
  batch_of,
  named_arrays,
)
from realm_jax.foundations import choices
from realm_jax.index.vectors.searcher import Searcher
from realm_jax.retrieval import trivial_passages
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import gather
from realm_jax.retrieval.passage_finder import PassageFinder
from realm_jax.retrieval.posterior import Posterior

_EXTRA_PASSAGES = 3  # a sentence occurs in two overlapping passages, and in some that quote it


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalConfig(choices.Checked):
  """Settings of retrieval.

  Attributes:
    num_passages: K, the number of passages per query, including the null passage.
    passage_length: P, the length of a passage for the dual encoder, in wordpieces.
    joint_length: T, the length of query and passage together, in wordpieces.
    null_passage: "keep" also reads every query with the null passage; "mask" gives it no weight.
    trivial_passage: "drop" leaves out the passage that the query was cut from and all others that
      contain its sentence; "allow" keeps them; "first" reads every query with its source, whether
      that was found or not, at the score of the best passage found, and leaves out the others that
      contain its sentence. It teaches a new reader to copy.
    posterior: What proposes some of the passages in training, where the masked words are known;
      None reads only what the masked query finds. Checkpoints do not keep it.
  """

  num_passages: Annotated[int, choices.Bounds(least=2)] = 8
  passage_length: choices.PassageLength = 288
  joint_length: choices.PassageLength = 384
  null_passage: Literal["keep", "mask"] = "keep"
  trivial_passage: Literal["drop", "allow", "first"] = "drop"
  posterior: Posterior | None = None

  def __post_init__(self):
    super().__post_init__()
    if self.posterior and not self.posterior.num_passages < self.num_passages:
      raise ValueError(
        f"posterior num_passages={self.posterior.num_passages} with num_passages="
        f"{self.num_passages}; give 1 to {self.num_passages - 1}, because one is the null passage"
      )

  @property
  def answering(self) -> "RetrievalConfig":
    """The settings of retrieval when the masked words are not known."""
    return dataclasses.replace(self, posterior=None)


@dataclasses.dataclass(eq=False, kw_only=True)
class Retriever(PassageFinder):
  """Retrieves passages for masked queries.

  Attributes:
    store: The knowledge corpus; its rows are those of the index.
  """

  searcher: Searcher
  store: PassageStore
  config: RetrievalConfig

  def __post_init__(self):
    posterior = self.config.posterior
    self._search_unmasked = None if posterior is None else posterior.open(self.store)
    # Candidates beyond those to be read, in case some are trivial.
    self._num_extra = 0 if self.config.trivial_passage == "allow" else _EXTRA_PASSAGES

  def use(self, loaded: LoadedGeneration) -> None:
    self.searcher = loaded.searcher

  @property
  def num_found(self) -> int:
    return self.config.num_passages - 1 + self._num_extra

  def select(
    self, found: SearchResults, queries_BxE: np.ndarray, queries: MaskedQueries
  ) -> tuple[SearchResults, dict[str, float]]:
    """Returns ids and scores `[B, K]`, the null passage first, and metrics of the search."""
    chosen, metrics = self._without_trivial(queries, found, self.config.num_passages)
    best_B = chosen.scores_BxK[:, 1]
    if self.config.posterior is not None and self._search_unmasked is not None:
      count = self.config.posterior.num_passages
      proposed = self._search_unmasked(queries.unmasked, count + self._num_extra)
      proposed, _ = self._without_trivial(queries, proposed, count + 1)
      chosen = with_proposed(chosen, proposed)
      metrics["retrieval/answer_gained_share"] = self._answer_gained_share(queries, chosen)
    if self.config.trivial_passage == "first":
      chosen, metrics["retrieval/own_passage_share"] = self._with_own_first(
        queries, chosen, score_B=best_B
      )
    return chosen, metrics

  def _without_trivial(
    self, queries: MaskedQueries, found: SearchResults, num_passages: int
  ) -> tuple[SearchResults, dict[str, float]]:
    trivial_BxR = np.zeros(found.ids_BxK.shape, bool)
    if self.config.trivial_passage != "allow":
      trivial_BxR = trivial_passages.find(queries, found.ids_BxK, store=self.store)
    chosen = choose_passages(found, trivial_BxR=trivial_BxR, num_passages=num_passages)
    return chosen, {"retrieval/trivial_passages": int(trivial_BxR.sum()) / len(trivial_BxR)}

  def _answer_gained_share(self, queries: MaskedQueries, chosen: SearchResults) -> float:
    """Returns the share of queries that only a proposed passage answers."""
    answers_BxK = trivial_passages.find_answering(queries, chosen.ids_BxK, store=self.store)
    proposed_BxK = np.isneginf(chosen.scores_BxK)
    gained_B = (answers_BxK & proposed_BxK).any(axis=1)
    return float(np.mean(gained_B & ~(answers_BxK & ~proposed_BxK).any(axis=1)))

  def gather(self, queries: MaskedQueries, passages: SearchResults) -> RetrievedBatch:
    """Makes the encoder inputs of chosen passages."""
    batch = gather(
      queries,
      passages,
      store=self.store,
      passage_length=self.config.passage_length,
      joint_length=self.config.joint_length,
    )
    if self.config.null_passage == "mask":
      batch = without_null(batch)
    return batch

  def _with_own_first(
    self, queries: MaskedQueries, found: SearchResults, *, score_B: np.ndarray
  ) -> tuple[SearchResults, float]:
    own_B = trivial_passages.sources(queries, store=self.store)
    ids_BxK, scores_BxK = found.ids_BxK.copy(), found.scores_BxK.copy()
    moved_B = (own_B >= 0) & ~(ids_BxK == own_B[:, None]).any(axis=1)
    for values_BxK in (ids_BxK, scores_BxK):
      values_BxK[moved_B, 2:] = values_BxK[moved_B, 1:-1]
    ids_BxK[moved_B, 1], scores_BxK[moved_B, 1] = own_B[moved_B], score_B[moved_B]
    return SearchResults(ids_BxK, scores_BxK), float(np.mean(own_B >= 0))

  def in_flight(self, batch: RetrievedBatch) -> dict:
    return {
      **named_arrays(batch.queries),
      "passage_ids": batch.passage_ids_BxK,
      "stale_scores": batch.stale_scores_BxK,
    }

  def resume(self, in_flight: dict) -> RetrievedBatch:
    saved = {name: np.asarray(value) for name, value in in_flight.items()}
    queries = batch_of(MaskedQueries, saved)
    return self.gather(queries, SearchResults(saved["passage_ids"], saved["stale_scores"]))


def without_null(batch: RetrievedBatch) -> RetrievedBatch:
  """Removes the null passage from queries that have another passage."""
  valid_BxK = batch.valid_BxK.copy()
  valid_BxK[:, 0] = ~valid_BxK[:, 1:].any(axis=1)
  return dataclasses.replace(batch, valid_BxK=valid_BxK)


def closed_book(batch: RetrievedBatch) -> RetrievedBatch:
  """Leaves every query only the null passage: the same model without retrieval."""
  valid_BxK = np.zeros_like(batch.valid_BxK)
  valid_BxK[:, 0] = True
  return dataclasses.replace(batch, valid_BxK=valid_BxK)


def choose_passages(
  results: SearchResults, *, trivial_BxR: np.ndarray, num_passages: int
) -> SearchResults:
  """Returns the null passage followed by the best K-1 passages that are not trivial.

  See Guu et al. 2020, section 3.4. The search returns a few extra passages, so that K-1 remain
  after the trivial ones are dropped. Empty slots get MISSING_PASSAGE_ID.

  Returns:
    Ids and scores `[B, K]`; null and missing passages score 0.
  """
  ids_BxR, scores_BxR = results
  usable_BxR = (ids_BxR >= 0) & ~trivial_BxR
  order_BxR = np.argsort(~usable_BxR, axis=1, kind="stable")[:, : num_passages - 1]
  usable = np.take_along_axis(usable_BxR, order_BxR, 1)
  ids = np.where(usable, np.take_along_axis(ids_BxR, order_BxR, 1), MISSING_PASSAGE_ID)
  scores = np.where(usable, np.take_along_axis(scores_BxR, order_BxR, 1), 0.0)
  batch, found = ids.shape
  ids_BxK = np.full((batch, num_passages), MISSING_PASSAGE_ID, np.int32)
  scores_BxK = np.zeros((batch, num_passages), np.float32)
  ids_BxK[:, 0] = NULL_PASSAGE_ID
  ids_BxK[:, 1 : 1 + found] = ids
  scores_BxK[:, 1 : 1 + found] = scores
  return SearchResults(ids_BxK, scores_BxK)


def with_proposed(found: SearchResults, proposed: SearchResults) -> SearchResults:
  """Returns passages for K slots of which the posterior fills some, each passage once.

  The best found are followed by those proposed that are not among them. Where these are few, the
  others found fill the slots that are left.

  Args:
    found: The null passage and the best K-1 found with the masked query.
    proposed: The null passage and what the posterior proposes.

  Returns:
    Ids and scores `[B, K]`; what was only proposed scores -inf.
  """
  num_passages = found.ids_BxK.shape[1]
  own = num_passages - proposed.ids_BxK.shape[1] + 1
  parts = (found.ids_BxK[:, 1:own], proposed.ids_BxK[:, 1:], found.ids_BxK[:, own:])
  ids_BxR = np.concatenate(parts, axis=1)
  again_BxRxR = np.tril(ids_BxR[:, :, None] == ids_BxR[:, None, :], k=-1)
  same_BxRxK = ids_BxR[:, :, None] == found.ids_BxK[:, None, :]
  scores_BxR = np.where(same_BxRxK, found.scores_BxK[:, None, :], -np.inf).max(axis=2)
  return choose_passages(
    SearchResults(ids_BxR, scores_BxR),
    trivial_BxR=again_BxRxR.any(axis=2),
    num_passages=num_passages,
  )
