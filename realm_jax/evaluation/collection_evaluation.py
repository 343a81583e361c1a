"""Evaluates document rankings on a retrieval test collection; writes runs and result cards."""

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.judgements import Judgements, read_judgements, read_queries
from realm_jax.data.questions import Question
from realm_jax.evaluation import prediction_files, result_card
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.document_ranking import (
  Run,
  document_scores,
  rank_documents,
  read_run,
  run_text,
)
from realm_jax.evaluation.fusion_tuning import judged_queries
from realm_jax.evaluation.systems import System, open_system
from realm_jax.saved.opening import Sources


def evaluate_collection(
  *,
  queries: str,
  judgements: str,
  sources: Sources,
  asking: Asking,
  predictions: str | None = None,
  against: str | None = None,
  tune_on: str | None = None,
  output: str | None = None,
) -> dict:
  """Ranks documents and scores them against judgements; see `realm evaluate` for the arguments."""
  grades = read_judgements(judgements)
  asked = read_queries(queries, grades)
  # Read first, so that a mismatched file is rejected before anything is evaluated.
  other = against and scores_of_file(against, grades, asked, recall_at=asking.recall_at)
  if predictions is not None:
    run, measured = read_run(predictions), {"run": predictions}
  else:
    development = None
    if tune_on is not None:
      known = read_judgements(tune_on)
      if all(known.get(query) == grades[query] for query in grades):
        raise ValueError(f"tune_on={tune_on} has the judgements to evaluate; tune on others")
      development = judged_queries(read_queries(queries, known), known)
    system = open_system(sources, asking, development)
    run = _rank(system, asked, asking)
    measured = {**system.measured, **_relevant_documents(grades, system.corpus.store)}
  scores = document_scores(run, grades, asked, recall_at=asking.recall_at)
  files = {
    "predictions.jsonl": "".join(f"{line}\n" for line in _lines(run, asked, scores)),
    "run.trec": run_text(run, tag=measured.get("retriever", "realm_jax")),
  }
  return result_card.publish(
    result_card.Evaluated(measured=measured, scores=scores, files=files),
    inputs={"queries": queries, "judgements": judgements},
    against=(str(against), other) if other else None,
    output=output,
  )


def scores_of_file(
  path: str, judgements: Judgements, queries: Sequence[Question], *, recall_at: Sequence[int]
) -> dict[str, np.ndarray]:
  """Returns the scores of a TREC run file or a `predictions.jsonl`."""
  if path.endswith(".jsonl"):
    return prediction_files.read_scores(path, queries).scores
  return document_scores(read_run(path), judgements, queries, recall_at=recall_at)


def _rank(system: System, queries: Sequence[Question], asking: Asking) -> Run:
  store = system.corpus.store
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
  relevant = {name for grades in judgements.values() for name, grade in grades.items() if grade > 0}
  missing = relevant.difference(map(store.document, range(len(store))))
  if missing:
    logging.warning(
      "%d of %d documents judged relevant are not in %s, such as %r; they count as misses",
      len(missing),
      len(relevant),
      store.directory,
      min(missing),
    )
  return {"relevant documents": f"{len(relevant)}, {len(missing)} of them not in the corpus"}


def _lines(
  run: Run, queries: Sequence[Question], scores: Mapping[str, np.ndarray]
) -> Iterator[str]:
  for place, query in enumerate(queries):
    ranking = run.get(query.id, {})
    record = {
      "id": query.id,
      "question": query.text,
      "figures": {name: round(float(values[place]), 6) for name, values in scores.items()},
      "documents": list(ranking),
      "scores": [round(score, 6) for score in ranking.values()],
    }
    yield json.dumps(record, ensure_ascii=False)
