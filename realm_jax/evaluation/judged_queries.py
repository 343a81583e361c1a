"""Evaluates document rankings on a retrieval test collection; writes runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.judgements import Judgements, describe_missing
from realm_jax.data.questions import Question
from realm_jax.evaluation.document_ranking import (
  Run,
  document_scores,
  rank_documents,
  read_run,
  run_text,
)
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import Asking, System


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedQueries:
  """The queries of a retrieval test collection, as an `Evaluator`.

  Attributes:
    questions: The queries that are judged.
    grades: Their judgements.
  """

  kind: ClassVar[str] = "--qrels"
  settings: ClassVar[frozenset[str]] = frozenset(("recall_at", "batch_size"))
  settings_read: ClassVar[frozenset[str]] = frozenset(("recall_at",))

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  grades: Judgements
  asking: Asking

  def evaluate(self, system: System) -> Evaluated:
    relevant = _relevant_documents(self.grades, system.store)
    return self._scored(_rank(system, self.questions, self.asking), {**system.measured, **relevant})

  def read(self, predictions: str) -> Evaluated:
    return self._scored(read_run(predictions), {"run": predictions})

  def _scored(self, run: Run, measured: Mapping[str, str]) -> Evaluated:
    recall_at = self.asking.recall_at
    scores = document_scores(run, self.grades, self.questions, recall_at=recall_at)
    records = []
    for query in self.questions:
      ranking = run.get(query.id, {})
      ranked = [round(score, 6) for score in ranking.values()]
      record = {"id": query.id, "question": query.text, "documents": list(ranking)}
      records.append({**record, "scores": ranked})
    run_file = run_text(run, tag=measured.get("retriever", "realm_jax"))
    return Evaluated(
      measured=measured, scores=scores, records=records, files={"run.trec": run_file}
    )


def _rank(system: System, queries: Sequence[Question], asking: Asking) -> Run:
  store = system.store
  if not store.document(0):
    raise ValueError(
      f"the passages of {store.directory} lack the names of their documents; write the store again "
      "with `realm prepare_corpus`"
    )
  return rank_documents(
    system.retrieve,
    queries,
    document=store.document,
    num_documents=max(asking.recall_at),
    batch_size=asking.batch_size,
  )


def _relevant_documents(judgements: Judgements, store: PassageStore) -> dict[str, str]:
  """Describes the relevant documents for a result card; warns if some are not in the corpus."""
  names = {*map(store.document, range(len(store)))}
  if warning := describe_missing(judgements, names, source=str(store.directory)):
    logging.warning("%s", warning)
  relevant = {name for grades in judgements.values() for name, grade in grades.items() if grade > 0}
  missing = len(relevant - names)
  return {"relevant documents": f"{len(relevant)}, {missing} of them not in the corpus"}
