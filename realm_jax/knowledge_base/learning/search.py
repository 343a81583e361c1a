"""A search: what ranks, what past questions move, and whether an answer is among what is found."""

import functools
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from realm_jax.knowledge_base.learning import refining, use_memory
from realm_jax.knowledge_base.learning.adapter import compared
from realm_jax.knowledge_base.learning.answerability import DEPTH, Answerability, ranking_of
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store.columns import Where
from realm_jax.knowledge_base.store.commits import RANKINGS, Ranking
from realm_jax.knowledge_base.store.hits import Earned, Hit, Hits
from realm_jax.knowledge_base.store.query import Query, is_blank
from realm_jax.knowledge_base.store.snapshot import Snapshot

_SHARPNESS = 8  # by which nearer past questions count more


def find(
  snapshot: Snapshot,
  query: Query,
  *,
  memory: Memory,
  model: Answerability | None,
) -> Hits:
  """Returns the best passages and the probability; see `KnowledgeBase.search`.

  Args:
    memory: Past questions, if the settings let them move passages.
    model: What knows whether an answer was found; None if nothing was learned.
  """
  if is_blank(query.question):  # which services refuse to embed
    snapshot.matching(query.where or {})  # may be wrong
    return Hits(query.question, (), snapshot.languages, asked=query.question)
  asked = query.question
  if query.after:
    asked = f"{asked} {snapshot.rarest_word(query.after, beside=asked)}".strip()
  conditions = {"where": query.where, "exact": query.exact, "memory": memory}
  if model is not None and model.is_of(snapshot.commit.settings, query.by):
    rank = functools.partial(with_features, snapshot, asked, **conditions)
  else:
    rank = functools.partial(ranked, snapshot, asked, by=query.by, **conditions)
  found, (_, earned, *features) = refining.refined(snapshot, query, rank=rank)
  stale = answerable = None
  if model is not None and features:
    stale = bool(found) and model.is_stale(snapshot.num_passages)
    answerable = None if stale else model.probability(features[0], len(found))
  least = query.min_answerable
  if least is not None and answerable is None:
    raise ValueError(
      f"min_answerable={least}, but what has learned when a search finds an answer knew "
      f"{model.num_passages:,} passages, and there are {snapshot.num_passages:,}; train again"
      if model is not None and stale
      else f"min_answerable={least}, but nothing has learned when such a search finds an "
      "answer; train with questions, of which some have an answer and some have none"
    )
  kept = tuple(found) if (answerable or 0) >= (least or 0) else ()
  earned = earned if query.explain else None
  return Hits(query.question, kept, snapshot.languages, answerable, earned, asked)


def hits(snapshot: Snapshot, question: str, k: int, **conditions: Any) -> list[Hit]:
  """Returns the best passages, best first; see `ranked`."""
  found, _ = ranked(snapshot, question, k, **conditions)
  return found


def document_ids(snapshot: Snapshot, question: str, k: int, *, by: Ranking) -> list[str]:
  """Returns the ids of the documents of the best passages, at most k, best first."""
  return [*dict.fromkeys(hit.id for hit in hits(snapshot, question, 10 * k, by=by))][:k]


def ranked(
  snapshot: Snapshot,
  question: str,
  k: int,
  *,
  where: Where | None = None,
  by: Ranking | None = None,
  exact: bool = False,
  memory: Memory | None = None,
  leave_out: bool = False,
  question_E: np.ndarray | None = None,
) -> tuple[list[Hit], Earned]:
  """Returns the best passages, best first, and how far similar past questions moved them.

  Args:
    memory: Past questions, which move passages; None for none.
    leave_out: Whether what is remembered of this very question is left out.
    question_E: The embedding of the question, if it is known.
  """
  if by not in (None, *RANKINGS) or (by in ("encoder", "fused") and not snapshot.embed):
    ranked = " or ".join(RANKINGS) if snapshot.embed else "words"
    raise ValueError(f"by={by!r:.60}; this knowledge base ranks by {ranked}")
  if not snapshot.segments:
    return [], Earned()
  by = (by or snapshot.commit.settings.ranking) if snapshot.embed else "words"
  compared_E = None
  if snapshot.embed is None or by == "words":
    question_E = None
  else:
    question_E = snapshot.embed(question) if question_E is None else question_E
    compared_E = compared(snapshot, question_E)
  lifts, earned, recall = {}, Earned(), None
  if memory:
    recall = memory.recall(question, snapshot, question_E=question_E, leave_out=leave_out)
    lifts = recall.lifts(snapshot, strength=1.0)
  found = snapshot.best(
    question,
    k,
    matching=snapshot.matching(where or {}),
    by=by,
    exact=exact,
    question_E=compared_E,
    also=lifts,
  )
  rows, best = found.rows, found.scores
  if recall and lifts:
    spread = snapshot.spread(found, by=by, question_E=compared_E)
    earned = recall.earned(spread, by=by)
    lifts = recall.lifts(snapshot, strength=earned.strength)
    share_R = np.array([lifts[row].share if row in lifts else 0.0 for row in rows.tolist()])
    best = use_memory.moved(found, spread * share_R, by=by)
  places = []
  columns = rows.tolist(), best.tolist(), found.scores.tolist(), found.of_words.tolist()
  for row, score, *shares in zip(*columns, strict=True):
    if score > -np.inf:
      place, number = snapshot.place(row)
      places.append((-score, snapshot.id(place), number, place, row, *shares))
  hits = []
  for score, id, number, place, row, own, words in heapq.nsmallest(
    k, places, key=lambda one: one[:3]
  ):
    why = {"words": words, "encoder": own - words, "remembered": -score - own}
    why["useful_for"] = lifts[row].question if row in lifts else ""
    hits.append(snapshot.hit_at(place, number, id, -score, **why))
  return hits, earned


def with_features(
  snapshot: Snapshot,
  question: str,
  k: int,
  *,
  memory: Memory,
  where: Where | None = None,
  exact: bool = False,
  leave_out: bool = False,
) -> tuple[list[Hit], Earned, np.ndarray]:
  """Returns the best passages by what ranks, what moved them, and the features of the search."""
  by_words = ranking_of(snapshot.commit.settings) == "words"
  question_E = None if by_words or snapshot.embed is None else snapshot.embed(question)
  hits, earned = ranked(
    snapshot,
    question,
    max(k, DEPTH),
    where=where,
    exact=exact,
    memory=memory,
    leave_out=leave_out,
    question_E=question_E,
  )
  features, best = _shape([hit.score for hit in hits]), []
  compared_E = None if question_E is None else compared(snapshot, question_E)
  for by in ("words",) if question_E is None else ("words", "encoder"):
    rows, scores, _ = snapshot.best(
      question, DEPTH, matching=snapshot.matching(where or {}), by=by, question_E=compared_E
    )
    order = np.argsort(-scores, kind="stable")[:DEPTH]
    features += _shape(scores[order].tolist())
    best.append({*rows[order[:5]].tolist()})
  terms = snapshot.terms(question)
  found = [snapshot.terms(f"{hit.title} {hit.heading} {hit.text}") & terms for hit in hits[:5]]
  number = max(1, len(terms))
  features += [
    float(np.log(number)),
    len(found[0]) / number if hits else 0.0,
    len(frozenset().union(*found)) / number,
    len(best[0] & best[-1]) / 5,
    *_past(memory, question, snapshot, question_E, leave_out=leave_out),
  ]
  return hits[:k], earned, np.array(features)


def _past(
  memory: Memory,
  question: str,
  snapshot: Snapshot,
  question_E: np.ndarray | None,
  *,
  leave_out: bool,
) -> tuple[float, float]:
  """Returns the similarity of the nearest past question, and the share of near ones answered."""
  recall = memory.recall(question, snapshot, question_E=question_E, leave_out=leave_out)
  similarity_Q = np.clip(recall.similarity_N, 0, 1)
  weights_Q = similarity_Q**_SHARPNESS
  share = float(weights_Q @ recall.answered) / max(float(weights_Q.sum()), 1e-12)
  return float(similarity_Q.max(initial=0)), share


def _shape(scores: Sequence[float]) -> list[float]:
  """Returns the best of descending scores, and how it stands out; 0 is that of a missing one."""
  s = np.zeros(DEPTH)
  s[: len(scores)] = scores[:DEPTH]
  return [s[0], s[0] - s[1], s[0] - s[4], s[0] - s[-1], s.mean(), s.std()]
