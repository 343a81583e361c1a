"""Rankings of documents by their best passages, and their metrics against judgements."""

import collections
import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Judgements, Question, columns_of, describe_missing
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import Asking, System
from realm_jax.foundations import extras, progress, text_files

_CUTOFF = 10  # for nDCG and the reciprocal rank
# Query id to document name to score, best first.
Run = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedQueries:
  """The judged queries of a retrieval test collection, as an `Evaluator`.

  Attributes:
    grades: Their judgements.
  """

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  grades: Judgements
  asking: Asking

  def evaluate(self, system: System) -> Evaluated:
    store = system.store
    relevant = _relevant_documents(self.grades, store)
    if not store.document(0):
      raise ValueError(
        f"the passages of {store.directory} lack the names of their documents; write the store "
        "again with `realm prepare_corpus`"
      )

    def passage(row: int, score: float) -> Found:
      return Found(store.document(row), score, lambda: (store.title(row), store.text(row)))

    def find(texts: list[str], k: int) -> list[list[Found]]:
      found = (of.tolist() for of in system.retrieve(texts, k=k))
      return [
        [passage(row, score) for row, score in zip(*pair, strict=True) if row >= 0]
        for pair in zip(*found, strict=True)
      ]

    run = rank_documents(
      find,
      self.questions,
      num_documents=max(self.asking.recall_at),
      batch_size=self.asking.batch_size,
    )
    return self._scored(run, {**system.measured, **relevant})

  def read(self, predictions: str) -> Evaluated:
    run = read_run(predictions)
    missing = sum(query.id not in run for query in self.questions)
    return self._scored(run, {"run": predictions, "missing rankings": missing})

  def _scored(self, run: Run, measured: Mapping[str, str | int]) -> Evaluated:
    recall_at = self.asking.recall_at
    run = {query.id: run[query.id] for query in self.questions if query.id in run}
    rankings = [run.get(query.id, {}) for query in self.questions]
    return Evaluated(
      measured=measured,
      scores=document_scores(run, self.grades, self.questions, recall_at=recall_at),
      questions=self.questions,
      records=[
        {"documents": [*ranking], "scores": [round(score, 6) for score in ranking.values()]}
        for ranking in rankings
      ],
      files={"run.trec": run_text(run, tag=str(measured.get("retriever", "realm_jax")))},
    )


def _relevant_documents(judgements: Judgements, store: PassageStore) -> dict[str, str]:
  """Describes the relevant documents for a result card; warns if some are not in the corpus."""
  names = {*map(store.document, range(len(store)))}
  if warning := describe_missing(judgements, names, source=str(store.directory)):
    logging.warning("%s", warning)
  relevant = {name for grades in judgements.values() for name, grade in grades.items() if grade > 0}
  missing = len(relevant - names)
  return {"relevant documents": f"{len(relevant)}, {missing} of them not in the corpus"}


class Found(NamedTuple):
  """A passage of the document of an id; `texts` returns its title and its text."""

  id: str
  score: float
  texts: Callable[[], tuple[str, str]]


def rank_documents(
  find: Callable[[list[str], int], Sequence[Sequence[Found]]],
  queries: Sequence[Question],
  *,
  num_documents: int,
  batch_size: int = 32,
) -> Run:
  """Finds the best documents for each query, without the one that is the query.

  Args:
    find: Finds the best k passages of each text, best first; fewer if there are no more.
  """
  run = {}
  batches = [queries[i : i + batch_size] for i in range(0, len(queries), batch_size)]
  for batch in progress.track(batches, what="batches of queries"):
    texts, depth, rankings = [query.text for query in batch], num_documents, []
    while not rankings:
      found = find(texts, depth)
      rankings = [*map(_documents, batch, found)]
      if any(
        len(ranking) < num_documents and len(passages) >= depth
        for ranking, passages in zip(rankings, found, strict=True)
      ):
        depth, rankings = 4 * depth, []
    for query, ranking in zip(batch, rankings, strict=True):
      run[query.id] = dict(list(ranking.items())[:num_documents])
  return run


def _documents(query: Question, passages: Sequence[Found]) -> dict[str, float]:
  ranking: dict[str, float] = {}
  for passage in passages:
    ranking.setdefault(passage.id, passage.score)
  if any(one.id == query.id and is_query(query.text, *one.texts()) for one in passages):
    del ranking[query.id]
  return ranking


def is_query(query: str, title: str, text: str) -> bool:
  """Returns whether a passage of a document with the id of a query is the query's own text.

  Some collections, such as ArguAna, ask for what is like one of their documents. BEIR leaves out
  every document with the query's id, also where both are just numbered from 1.
  """
  query, passage, whole = (" ".join(part.split()) for part in (query, text, f"{title} {text}"))
  return bool(passage) and (query in whole or query.startswith((passage, whole)))


def document_scores(
  run: Run, judgements: Judgements, queries: Sequence[Question], *, recall_at: Sequence[int]
) -> dict[str, np.ndarray]:
  """Returns each metric by name as `[n]` over the queries: `ndcg@10`, `mrr@10` and `recall@k`.

  `recall@k` is the share of the relevant documents that are among the best k. Metrics see the order
  of the run, not its scores, whose ties they would break in different ways.

  Raises:
    ValueError: If no document in the run is judged, or the extra `trec` is not installed.
  """
  try:
    import ir_measures
    from ir_measures import RR, R, nDCG
  except ModuleNotFoundError as error:
    raise ValueError(f"judgements need {error.name}: {extras.how_to_install('trec')}") from error
  if not any(judgements[query].keys() & run.get(query, {}).keys() for query in judgements):
    raise ValueError(
      "none of the documents found is judged; check that the judgements are for this corpus, and "
      "that its documents have the names of corpus.jsonl"
    )
  measures = {nDCG @ _CUTOFF: f"ndcg@{_CUTOFF}", RR @ _CUTOFF: f"mrr@{_CUTOFF}"}
  measures |= {R @ k: f"recall@{k}" for k in recall_at}
  # By numbers, because the library ends names at a NUL, and then returns what is in its memory.
  row = {query.id: str(i) for i, query in enumerate(queries)}
  number: dict[str, str] = collections.defaultdict(lambda: str(len(number)))
  graded = {row[q]: {number[d]: grade for d, grade in of.items()} for q, of in judgements.items()}
  ordered = {
    row[query]: {number[document]: len(ranking) - rank for rank, document in enumerate(ranking)}
    for query, ranking in run.items()
  }
  scores = {name: np.zeros(len(queries)) for name in measures.values()}
  for metric in ir_measures.iter_calc([*measures], graded, ordered):
    scores[measures[metric.measure]][int(metric.query_id)] = metric.value
  return scores


def run_text(run: Run, *, tag: str) -> str:
  """Returns the content of a TREC run file: lines of `query Q0 document rank score tag`.

  Tabs separate the columns of a line with a name that has spaces, as `read_run` reads them.
  """
  return "".join(
    _run_line(query, "Q0", document, str(rank), f"{score:.9g}", "_".join(tag.split()))
    for query, ranking in run.items()
    for rank, (document, score) in enumerate(ranking.items(), 1)
  )


def _run_line(*columns: str) -> str:
  columns = tuple(re.sub(r"[\t\n\r]", "_", column) for column in columns)
  separator = "\t" if any(re.search(r"\s", column) for column in columns) else " "
  return separator.join(columns) + "\n"


def read_run(path: str | os.PathLike) -> Run:
  """Reads a TREC run file; equal scores keep the order of its lines.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line ranks nothing, or what an earlier one has ranked, or no line does.
  """
  run: dict[str, dict[str, float]] = {}
  for number, line in enumerate(text_files.read_lines(path), 1):
    columns = columns_of(line, least=6)
    if not columns:
      continue
    try:
      query, _, document, _, written, _ = columns
      if math.isnan(score := float(written)):
        raise ValueError("its score is NaN")
    except ValueError as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not `query Q0 document rank score tag`, with tabs if "
        f"a name has spaces: {error}"
      ) from error
    if document in run.setdefault(query, {}):
      raise ValueError(
        f"{os.fspath(path)}, line {number} ranks document {document!r} for query {query!r}, as an "
        "earlier line does; keep the better one"
      )
    run[query][document] = score
  if not run:
    raise ValueError(f"{os.fspath(path)} ranks nothing")
  return {
    query: dict(sorted(ranking.items(), key=lambda item: item[1], reverse=True))
    for query, ranking in run.items()
  }
