"""How well a knowledge base finds: by words, by its encoder and by both, on known questions."""

import dataclasses
import functools
import glob
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from realm_jax.data.answers import compile_answer, normalizer
from realm_jax.data.judgements import read_judgements, read_queries
from realm_jax.data.questions import Question, read_questions
from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, SearchResults
from realm_jax.evaluation import document_ranking, resampling
from realm_jax.index.bm25 import best_places
from realm_jax.knowledge_base.commits import Ranking
from realm_jax.knowledge_base.snapshot import Snapshot
from realm_jax.text import detection

_RECALL_AT = (5, 20, 100)
_RANKINGS: tuple[Ranking, ...] = ("words", "encoder", "fused")
Scores = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
  """Figures of each ranking on the same questions.

  Attributes:
    scores: By ranking and figure, the value of each question, `[n]`.
  """

  scores: Mapping[Ranking, Scores]

  @property
  def figures(self) -> dict[str, dict[str, float]]:
    """The mean of each figure, by ranking."""
    return {
      ranking: {name: float(values.mean()) for name, values in scores.items()}
      for ranking, scores in self.scores.items()
    }

  def compare(self, first: Ranking, second: Ranking = "words") -> dict[str, resampling.Comparison]:
    """Returns the differences of two rankings, question by question, by figure."""
    return {
      name: resampling.compare(values, self.scores[second][name])
      for name, values in self.scores[first].items()
    }

  def __repr__(self) -> str:
    """Returns a table of means and differences, with their 95 % bootstrap intervals."""
    names = [*self.scores["words"]]
    lines = [["", *names]]
    for ranking, scores in self.scores.items():
      intervals = resampling.bootstrap_intervals(scores)
      cells = (f"{scores[n].mean():.3f} ({_to(intervals[n], '.3f')})" for n in names)
      lines.append([ranking, *cells])
    for ranking in filter(lambda ranking: ranking != "words", self.scores):
      compared = self.compare(ranking)
      cells = (f"{c.difference:+.3f} ({_to(c.interval, '+.3f')})" for c in compared.values())
      lines.append([f"{ranking} - words", *cells])
    number = len(self.scores["words"][names[0]])
    table = "\n".join("".join(f"{cell:<27}" for cell in line).rstrip() for line in lines)
    return f"{number} questions\n{table}"


def evaluate(snapshot: Snapshot, path: str) -> Evaluation:
  """Ranks for the questions of a collection or a file; see `KnowledgeBase.evaluate`."""
  rankings = _RANKINGS if snapshot.embed else _RANKINGS[:1]
  if not os.path.isdir(path):
    asked = read_questions(path)
    return Evaluation(scores={r: found_answers(snapshot, asked, r) for r in rankings})
  tables = glob.glob(os.path.join(glob.escape(path), "qrels", "*"))
  tables = [t for t in tables if os.path.basename(t).startswith("test.")] or tables
  if len(tables) != 1:
    raise ValueError(
      f"{path}/qrels has {len(tables)} files; a collection has queries.jsonl and qrels/test.tsv"
    )
  judgements = read_judgements(tables[0])
  queries = read_queries(os.path.join(path, "queries.jsonl"), judgements)
  scores: dict[Ranking, Scores] = {}
  for ranking in rankings:
    run = document_ranking.rank_documents(
      functools.partial(_retrieve, snapshot, ranking),
      queries,
      document=lambda passage: snapshot.id(snapshot.place(passage)[0]),
      num_documents=max(_RECALL_AT),
    )
    scores[ranking] = document_ranking.document_scores(
      run, judgements, queries, recall_at=_RECALL_AT
    )
  return Evaluation(scores=scores)


class AnswerFinder:
  """Tells which passages of a snapshot have an answer, in whole words."""

  def __init__(self, snapshot: Snapshot):
    self._snapshot = snapshot
    self._words = functools.cache(self._normalized)

  def has(self, passage: int, question: Question) -> bool:
    """Returns whether a passage has one of the answers."""
    if question.regex:
      text = self._snapshot.hit(passage).text
      return any(compile_answer(answer).search(text) for answer in question.answers)
    words, normalize = self._words(passage)
    return any(f" {normalize(answer)} " in words for answer in question.answers)

  def _normalized(self, passage: int) -> tuple[str, Callable[[str], str]]:
    text = self._snapshot.hit(passage).text
    language = detection.language_of(text, among=self._snapshot.commit.settings.languages)
    normalize = _normalizer(language)
    return f" {normalize(text)} ", normalize


@functools.cache
def _normalizer(language: str) -> Callable[[str], str]:
  return functools.lru_cache(10_000)(normalizer(language, "corrected"))


def found_answers(snapshot: Snapshot, questions: Sequence[Question], ranking: Ranking) -> Scores:
  """Returns for which questions one of the best passages has an answer, as recall@k."""
  finder = AnswerFinder(snapshot)
  found_at = np.full(len(questions), np.inf)
  for i, question in enumerate(questions):
    (ids_K,) = _retrieve(snapshot, ranking, [question.text], k=max(_RECALL_AT)).ids_BxK
    has_answer = (finder.has(passage, question) for passage in ids_K[ids_K >= 0].tolist())
    found_at[i] = next((place for place, has in enumerate(has_answer) if has), np.inf)
  return {f"recall@{k}": (found_at < k).astype(float) for k in (1, *_RECALL_AT)}


def _retrieve(snapshot: Snapshot, ranking: Ranking, texts: Sequence[str], k: int) -> SearchResults:
  """Returns the rows of the best passages of each text."""
  ids_BxK = np.full((len(texts), k), MISSING_PASSAGE_ID, np.int32)
  scores_BxK = np.full((len(texts), k), -np.inf, np.float32)
  for b, text in enumerate(texts):
    scores_N, found_N = snapshot.scores(text, by=ranking)
    rows = np.flatnonzero(found_N & snapshot.live_N)
    rows = rows[best_places(scores_N[rows], k)]
    ids_BxK[b, : len(rows)], scores_BxK[b, : len(rows)] = rows, scores_N[rows]
  return SearchResults(ids_BxK, scores_BxK)


def _to(interval: tuple[float, float], form: str) -> str:
  return " to ".join(format(bound, form) for bound in interval)
