"""Trials: what the memory of other questions would have made of a past one.

Each past question with useful passages is asked again, without what is known of itself, and each
strength is scored by nDCG@10 of the documents that were useful.
"""

import numpy as np

from realm_jax.evaluation.ranking_metrics import ndcg
from realm_jax.knowledge_base.learning import use_memory
from realm_jax.knowledge_base.learning.adapter import compared
from realm_jax.knowledge_base.learning.past_questions import PastQuestion
from realm_jax.knowledge_base.learning.use_memory import STRENGTHS, Lift, Memory, Trial
from realm_jax.knowledge_base.store.commits import RANKINGS, Ranking
from realm_jax.knowledge_base.store.snapshot import Snapshot

_DEPTH = 10
_PASSAGES = 3 * _DEPTH  # that are ranked, because several may be of one document


def test(
  past: PastQuestion, snapshot: Snapshot, memory: Memory, *, question_E: np.ndarray | None = None
) -> Trial:
  """Returns the trial of a question, without gains if no passage that was useful is there.

  Args:
    memory: Past questions; whether this one is among them does not matter.
    question_E: Its embedding; None takes the one that is remembered.
  """
  useful = use_memory.rows(snapshot, past.useful)
  if useful and question_E is None:
    question_E = memory.embedding(past.key, snapshot)
  right = {snapshot.place(row)[0] for row in useful}
  ways = [(None, RANKINGS[:1])] + [(question_E, RANKINGS[1:])] * (question_E is not None)
  gains = {}
  for vector_E, rankings in ways if useful else ():
    recall = memory.recall(past.question, snapshot, question_E=vector_E, leave_out=True)
    lifts = recall.lifts(snapshot, strength=1.0)
    compared_E = None if vector_E is None else compared(snapshot, vector_E)
    for by in rankings:
      gains[by] = _gains(past.question, right, snapshot, lifts, by=by, question_E=compared_E)
  number = len(memory) + (memory.get(past.key) is None)
  return Trial(gains=gains, num_questions=number, num_passages=snapshot.num_passages)


def _gains(
  question: str,
  right: set,
  snapshot: Snapshot,
  lifts: dict[int, Lift],
  *,
  by: Ranking,
  question_E: np.ndarray | None,
) -> tuple[float, ...]:
  found = snapshot.best(question, _PASSAGES, by=by, question_E=question_E, also=lifts)
  spread = snapshot.spread(found, by=by, question_E=question_E)
  # In the order of ids, as searches rank passages of the same score.
  places = [snapshot.place(row) for row in found.rows.tolist()]
  ids = [(snapshot.id(place), number) for place, number in places]
  order = sorted(range(len(ids)), key=ids.__getitem__)
  found = found._replace(rows=found.rows[order], scores=found.scores[order])
  share_R = np.array([lifts[row].share if row in lifts else 0.0 for row in found.rows.tolist()])
  documents_R = [places[i][0] for i in order]
  values = [
    _ndcg(use_memory.moved(found, spread * (strength * share_R), by=by), documents_R, right)
    for strength in ((0, *STRENGTHS) if lifts else (0,) * (len(STRENGTHS) + 1))
  ]
  return *(round(one - values[0], 4) for one in values[1:]), float(f"{spread:.4g}")


def _ndcg(scores_R: np.ndarray, documents_R: list, right: set) -> float:
  order = [place for place in np.argsort(-scores_R, kind="stable") if scores_R[place] > -np.inf]
  documents = [*dict.fromkeys(documents_R[place] for place in order[:_PASSAGES])][:_DEPTH]
  return ndcg([document in right for document in documents], len(right), at=_DEPTH)
