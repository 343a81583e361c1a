"""How well a knowledge base finds: by words, by its encoder and by both, on known questions."""

import dataclasses
import functools
import glob
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from realm_jax.data.answers import occurs
from realm_jax.data.questions import (
  Question,
  describe_missing,
  read_judgements,
  read_queries,
  read_questions,
)
from realm_jax.evaluation import document_ranking, resampling
from realm_jax.evaluation.ranking_metrics import first_right, recalls
from realm_jax.knowledge_base.learning import search
from realm_jax.knowledge_base.learning.answerability import Answerability
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store.commits import RANKINGS
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.snapshot import Snapshot

_RECALL_AT = (5, 20, 100)
_COMMON = 5  # passages with an answer, above which it is weak evidence
_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
_MEMORY = " + memory"
Scores = Mapping[str, np.ndarray]
Search = Callable[[str, int], Sequence[Hit]]  # of a question and k


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
  """Figures of each ranking on the same questions.

  Attributes:
    scores: By ranking and figure, the value of each question, `[n]`; " + memory" follows the name
      of a ranking that past questions move.
    missing: Says which documents judged relevant the knowledge base lacks; "" if it has all.
    unlike: Questions unlike those that this was learned from, of which the best score alone tells.
    answerable: How well it is known whether an answer is among five hits: AUROC and calibration
      error, with intervals; None if nothing has learned it, or questions have no or all answers.
  """

  scores: Mapping[str, Scores]
  missing: str = ""
  answerable: Mapping[str, tuple[float, tuple[float, float]]] | None = None
  unlike: int = 0

  @property
  def figures(self) -> dict[str, dict[str, float]]:
    """The mean of each figure, by ranking."""
    return {
      ranking: {name: float(values.mean()) for name, values in scores.items()}
      for ranking, scores in self.scores.items()
    }

  def compare(self, first: str, second: str = "words") -> dict[str, resampling.Comparison]:
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
      start = ranking.removesuffix(_MEMORY) if ranking.endswith(_MEMORY) else "words"
      compared = self.compare(ranking, start)
      cells = (f"{c.difference:+.3f} ({_to(c.interval, '+.3f')})" for c in compared.values())
      lines.append([f"{ranking} - {start}", *cells])
    number = len(self.scores["words"][names[0]])
    table = "\n".join("".join(f"{cell:<27}" for cell in line).rstrip() for line in lines)
    known = ", ".join(
      f"{name} {value:.3f} ({_to(interval, '.3f')})"
      for name, (value, interval) in (self.answerable or {}).items()
    )
    if known:
      known = f"an answer is among five, by hits.answerable: {known}"
      known += f"; by the best score alone for {self.unlike} questions unlike those it learned from"
    return "\n".join([f"{number} questions", table, *filter(None, [known, self.missing])])


def evaluate(
  snapshot: Snapshot, path: str, *, memory: Memory, model: Answerability | None
) -> Evaluation:
  """Ranks for the questions of a collection or a file; see `KnowledgeBase.evaluate`."""
  searches: dict[str, Search] = {}
  hits = functools.partial(search.hits, snapshot, leave_out=True)
  for ranking in RANKINGS if snapshot.embed else RANKINGS[:1]:
    searches[ranking] = functools.partial(hits, by=ranking)
    if len(memory):
      searches[ranking + _MEMORY] = functools.partial(hits, by=ranking, memory=memory)
  if not os.path.isdir(path):
    asked = read_questions(path)
    used = memory if snapshot.commit.settings.memory else Memory()
    figures, unlike = answerable(snapshot, asked, used, model)
    return Evaluation(
      scores={name: found_answers(by, asked) for name, by in searches.items()},
      answerable=figures,
      unlike=unlike,
    )
  tables = glob.glob(os.path.join(glob.escape(path), "qrels", "*"))
  tables = [t for t in tables if os.path.basename(t).startswith("test.")] or tables
  if len(tables) != 1:
    raise ValueError(
      f"{path}/qrels has {len(tables)} files; a collection has queries.jsonl and qrels/test.tsv"
    )
  judgements = read_judgements(tables[0])
  found = [file for name in _QUERIES if os.path.exists(file := os.path.join(path, name))]
  queries = read_queries((found or [os.path.join(path, _QUERIES[0])])[0], judgements)
  scores: dict[str, Scores] = {}
  for name, by in searches.items():
    run = ranked(by, queries)
    scores[name] = document_ranking.document_scores(run, judgements, queries, recall_at=_RECALL_AT)
  names = {name for grades in judgements.values() for name in grades}
  there = names - snapshot.missing(names)
  missing = describe_missing(judgements, there, source="the knowledge base")
  return Evaluation(scores=scores, missing=missing)


def answerable(
  snapshot: Snapshot,
  questions: Sequence[Question],
  memory: Memory,
  model: Answerability | None,
) -> tuple[dict[str, tuple[float, tuple[float, float]]] | None, int]:
  """Returns how well it is known whether an answer is among five, and `unlike` of `Evaluation`."""
  probabilities, happened, unlike = [], [], 0
  is_known = model is not None and model.is_of(snapshot.commit.settings, None)
  if model is None or not is_known or model.is_stale(snapshot.num_passages):
    return None, 0
  for question in questions:
    hits, _, features = search.with_features(
      snapshot, question.text, 5, memory=memory, leave_out=True
    )
    has = (occurs(hit.text, question.answers, regex=question.regex) for hit in hits)
    happened.append(any(has))
    probabilities.append(model.probability(features, len(hits)))
    unlike += not model.knows(features)
  both = {*happened} == {True, False}
  figures = resampling.calibration(np.array(probabilities), np.array(happened)) if both else None
  return figures, unlike


def ranked(search: Search, queries: Sequence[Question]) -> document_ranking.Run:
  """Returns the best documents for each query, of as many as figures are of."""

  def found(hit: Hit) -> document_ranking.Found:
    return document_ranking.Found(hit.id, hit.score, lambda: (hit.title, hit.text))

  def find(texts: Sequence[str], k: int) -> list[list[document_ranking.Found]]:
    return [[*map(found, search(text, k))] for text in texts]

  depth = max(_RECALL_AT)
  return document_ranking.rank_documents(find, queries, num_documents=depth, batch_size=1)


def found_answers(
  search: Search,
  questions: Sequence[Question],
  *,
  names: Callable[[Question, Hit], bool] | None = None,
) -> Scores:
  """Returns for which questions one of the best passages has an answer, as recall@k.

  Args:
    names: Tells whether a passage names what a question is about, as it has to where many of the
      best passages have an answer.
  """
  firsts = []
  for question in questions:
    hits = search(question.text, max(_RECALL_AT))
    has_answer = [occurs(hit.text, question.answers, regex=question.regex) for hit in hits]
    if names is not None and sum(has_answer) > _COMMON:
      has_answer = [has and names(question, hit) for has, hit in zip(has_answer, hits, strict=True)]
    firsts.append(first_right(has_answer))
  return recalls(firsts, (1, *_RECALL_AT))


def _to(interval: tuple[float, float], form: str) -> str:
  return " to ".join(format(bound, form) for bound in interval)
