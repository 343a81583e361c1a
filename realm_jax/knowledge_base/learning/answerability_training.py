"""Learns from questions when a search finds an answer."""

import time
from collections.abc import Sequence

import numpy as np

from realm_jax.data.answers import occurs
from realm_jax.data.questions import Question
from realm_jax.foundations import progress
from realm_jax.knowledge_base.learning import search
from realm_jax.knowledge_base.learning.answerability import (
  DEPTH,
  Answerability,
  at_depth,
  ranking_of,
  sigmoid,
)
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store.snapshot import Snapshot

_DEPTHS = (1, 5, DEPTH)  # hits, among which an answer is or is not
_FOLDS, _FEWEST, _MOST = 5, 10, 3_000  # questions with and without an answer, and of all
_RARE, _MARGIN = 0.005, 0.1  # questions beyond the ranges of features, which are a bit wider
_NEAREST, _FAR = -3, 0.03  # the feature, and the share of questions without a past one that is near
_PENALTIES = (1.0, 10.0, 100.0, 1000.0)


def learn_answerability(
  snapshot: Snapshot, questions: Sequence[Question], *, memory: Memory, seconds: float
) -> Answerability | None:
  """Returns what was learned; None if too few questions have an answer among five, or too many.

  What is remembered of a question is left out when it is asked. The penalty is chosen by questions
  left out in turn, and the probabilities are calibrated by the same (Platt 1999).

  Args:
    questions: In random order; nothing else may have been learned from them.
    seconds: When to stop asking, at the latest.
  """
  rows, labels, started = [], [], time.monotonic()
  for question in progress.track(questions[:_MOST], what="questions to ask"):
    if time.monotonic() - started > seconds:
      break
    hits, _, features = search.with_features(
      snapshot, question.text, DEPTH, memory=memory, leave_out=True
    )
    has = [occurs(hit.text, question.answers, regex=question.regex) for hit in hits]
    rows.append([at_depth(features, min(k, len(hits))) for k in _DEPTHS])
    labels.append([any(has[:k]) for k in _DEPTHS])
  labels_QxD = np.array(labels, float)
  answered = labels_QxD[:, _DEPTHS.index(5)].sum() if labels else 0
  if min(answered, len(labels) - answered) < _FEWEST:
    return None
  rows_QxDxF = np.array(rows)
  lows_F, highs_F = _range(rows_QxDxF[:, 0])
  means_F, deviations_F = rows_QxDxF.mean((0, 1)), rows_QxDxF.std((0, 1))
  deviations_F[deviations_F < 1e-9] = 1
  rows_QxDxF = (rows_QxDxF - means_F) / deviations_F
  rows_QxDxF = np.concatenate([rows_QxDxF, np.ones_like(rows_QxDxF[..., :1])], axis=-1)
  fold_Q, tried = np.arange(len(labels)) % _FOLDS, []
  for penalty in _PENALTIES:
    logits_QxD = np.empty_like(labels_QxD)
    for fold in range(_FOLDS):
      rest = fold_Q != fold
      weights_F = _fit(rows_QxDxF[rest], labels_QxD[rest], penalty)
      logits_QxD[~rest] = rows_QxDxF[~rest] @ weights_F
    signed = np.where(labels_QxD > 0, logits_QxD, -logits_QxD)
    tried.append((float(np.logaddexp(0, -signed).mean()), penalty, logits_QxD))
  _, penalty, logits_QxD = min(tried, key=lambda one: one[0])
  slope, offset = _fit(np.stack([logits_QxD, np.ones_like(logits_QxD)], -1), labels_QxD, 1.0)
  weights_F = max(slope, 0.0) * _fit(rows_QxDxF, labels_QxD, penalty)
  weights_F[-1] += offset
  settings = snapshot.commit.settings
  by_best_F = _fit(rows_QxDxF[..., [0, -2, -1]], labels_QxD, 1.0)
  return Answerability(
    encoder=settings.encoder,
    adapter=settings.adapter,
    ranking=ranking_of(settings),
    means=tuple(means_F.tolist()),
    deviations=tuple(deviations_F.tolist()),
    weights=tuple(weights_F.tolist()),
    by_best=tuple(by_best_F.tolist()),
    lows=tuple(lows_F.tolist()),
    highs=tuple(highs_F.tolist()),
    num_passages=snapshot.num_passages,
  )


def _range(rows_QxF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns bounds that most rows are within; for the nearest past question, a higher one below."""
  lows_F, highs_F = np.quantile(rows_QxF, [_RARE, 1 - _RARE], axis=0)
  margin_F = _MARGIN * (highs_F - lows_F) + 1e-6
  lows_F, highs_F = lows_F - margin_F, highs_F + margin_F
  lows_F[_NEAREST] = np.quantile(rows_QxF[:, _NEAREST], _FAR)
  highs_F[_NEAREST] = 1 + margin_F[_NEAREST]
  return lows_F, highs_F


def _fit(rows: np.ndarray, labels: np.ndarray, penalty: float) -> np.ndarray:
  """Returns the weights of a logistic regression, by Newton's method; the last has no penalty."""
  rows, labels = rows.reshape(-1, rows.shape[-1]), labels.reshape(-1)
  penalties = np.full(rows.shape[1], penalty)
  penalties[-1] = 1e-3
  weights = np.zeros(rows.shape[1])
  for _ in range(25):
    p = sigmoid(rows @ weights)
    gradient = rows.T @ (p - labels) + penalties * weights
    curvature = (rows * (p * (1 - p))[:, None]).T @ rows + np.diag(penalties)
    weights -= np.linalg.solve(curvature, gradient)
  return weights
