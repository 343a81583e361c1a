"""What a knowledge base learned from questions: when they have an answer, and where to look for it.

`Answerability` is the probability that an answer is among the hits. It is a logistic regression of
what a search shows anyway: how far the best scores of each ranking stand out, how many words of the
question the passages have, whether the rankings agree, and whether similar questions were answered.
It is to a search what p(null passage) is to a reader.

`Adapter` maps the embeddings of questions, for any encoder; passages keep theirs:

  q' = |q| (q + q W + b) / |q + q W + b|
"""

import dataclasses
import json
import operator
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from realm_jax.data.answers import occurs
from realm_jax.foundations import atomic_files, json_fields, progress
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.knowledge_base import array_file, commits
from realm_jax.knowledge_base.columns import Where
from realm_jax.knowledge_base.commits import Ranking, Settings
from realm_jax.knowledge_base.hits import Earned, Hit, Hits, check_question, is_blank
from realm_jax.knowledge_base.past_questions import digest
from realm_jax.knowledge_base.use_memory import Memory

if TYPE_CHECKING:
  from realm_jax.data.questions import Question
  from realm_jax.knowledge_base.folder import Folder
  from realm_jax.knowledge_base.snapshot import Snapshot

_SEEN = DirectoryKind(name="questions that were learned from", files=("seen",))
_ADAPTER = DirectoryKind(name="an adapter", files=("adapter",))
_ANSWERABILITY = DirectoryKind(name="a model of what is answerable", files=("answerability.json",))
_DEPTHS = (1, 5, 20)  # hits, among which an answer is or is not
_DEPTH = _DEPTHS[-1]  # scores that are read
_FOLDS, _FEWEST, _MOST = 5, 10, 3_000  # questions with and without an answer, and of all
_SHARPNESS = 8  # by which nearer past questions count more
_RARE, _MARGIN = 0.005, 0.1  # questions beyond the ranges of features, which are a bit wider
_NEAREST, _FAR = -3, 0.03  # the feature, and the share of questions without a past one that is near
_CHANGED = 0.2  # share of the passages
_PENALTIES = (1.0, 10.0, 100.0, 1000.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Adapter:
  """W and b, float32."""

  weights_ExE: np.ndarray
  bias_E: np.ndarray

  def __call__(self, question_E: np.ndarray) -> np.ndarray:
    """Returns the embedding of a question that passages are ranked by."""
    mapped_E = question_E + question_E @ self.weights_ExE + self.bias_E
    length = np.linalg.norm(mapped_E)
    return mapped_E * np.float32(np.linalg.norm(question_E) / length if length else 1)

  def write(self, directory: str) -> str:
    """Writes it into a knowledge base; returns its name there, a digest."""
    arrays = {"weights": self.weights_ExE, "bias": self.bias_E}
    return commits.write_model(
      directory,
      self.weights_ExE.tobytes() + self.bias_E.tobytes(),
      kind=_ADAPTER,
      write=lambda folder: array_file.write(f"{folder}/adapter", arrays, metadata=None),
    )

  @classmethod
  def open(cls, directory: str, name: str) -> "Adapter":
    """Opens that of a knowledge base."""
    arrays, _ = array_file.open_mapped(f"{commits.model_path(directory, name)}/adapter")
    return cls(arrays["weights"], arrays["bias"])


class Seen:
  """Questions that encoder and adapter have learned from, by digests of them."""

  def __init__(self, digests: Iterable[str] = ()):
    self._digests = frozenset(digests)

  def __contains__(self, key: str) -> bool:
    return digest(key) in self._digests

  def plus(self, keys: Iterable[str]) -> "Seen":
    """Returns these and others."""
    return Seen((*self._digests, *map(digest, keys)))

  def write(self, directory: str) -> str:
    """Writes them into a knowledge base; returns their name there, "" for none."""
    content = "\n".join(sorted(self._digests))
    if not content:
      return ""
    return commits.write_model(
      directory,
      content.encode(),
      kind=_SEEN,
      write=lambda folder: atomic_files.write_text(f"{folder}/seen", content),
    )

  @classmethod
  def open(cls, directory: str, name: str) -> "Seen":
    """Opens those of a knowledge base."""
    if not name:
      return cls()
    with open(f"{commits.model_path(directory, name)}/seen", encoding="utf-8") as file:
      return cls(file.read().split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answerability:
  """A logistic regression, and the searches that it is of.

  Attributes:
    weights: Of the features in standard deviations from their means; that of 1 is the last.
    by_best: Of the best score, of the number of hits, and of 1, where nothing else is trusted.
    lows: The features that most questions have at least; beyond these or `highs`, or if no past
      question is near, the question is unlike those that were learned from.
    num_passages: Passages that were searched.
  """

  encoder: str
  adapter: str
  ranking: str
  means: tuple[float, ...]
  deviations: tuple[float, ...]
  weights: tuple[float, ...]
  by_best: tuple[float, float, float]
  lows: tuple[float, ...]
  highs: tuple[float, ...]
  num_passages: int

  def __post_init__(self):
    lists = self.means, self.deviations, self.weights, self.by_best, self.lows, self.highs
    numbers = np.concatenate([np.array(one, float) for one in lists])
    number = 6 * (2 if self.ranking == "words" else 3) + 7
    if [number, number, number + 1, 3, number, number] != [*map(len, lists)]:
      raise ValueError(f"there are other than {number} features")
    if not (np.isfinite(numbers).all() and min(self.deviations) > 0):
      raise ValueError("a number is not finite, or a deviation not positive")

  def is_of(self, snapshot: "Snapshot", by: Ranking | None) -> bool:
    """Returns whether it was learned from such searches."""
    settings = snapshot.commit.settings
    own = (self.encoder, self.adapter, self.ranking)
    return own == (settings.encoder, settings.adapter, by or _ranking(settings))

  def is_stale(self, snapshot: "Snapshot") -> bool:
    """Returns whether so many passages came or went that it is to be learned again."""
    return abs(snapshot.num_passages - self.num_passages) > _CHANGED * self.num_passages

  def knows(self, features: np.ndarray) -> bool:
    """Returns whether the question is like those that were learned from."""
    return bool(((self.lows[:-1] <= features) & (features <= self.highs[:-1])).all())

  def probability(self, features: np.ndarray, k: int) -> float:
    """Returns that of an answer among the best k."""
    row = (_at(features, k) - self.means) / self.deviations
    if not self.knows(features):
      return float(_sigmoid(np.append(row[[0, -1]], 1) @ self.by_best)) if k else 0.0
    return float(_sigmoid(np.append(row, 1) @ self.weights)) if k else 0.0

  def write(self, directory: str) -> str:
    """Writes it into a knowledge base; returns its name there, a digest."""
    content = json.dumps(dataclasses.asdict(self))
    return commits.write_model(
      directory,
      content.encode(),
      kind=_ANSWERABILITY,
      write=lambda folder: atomic_files.write_text(f"{folder}/answerability.json", content),
    )

  @classmethod
  def open(cls, directory: str, name: str) -> "Answerability | None":
    """Opens that of a knowledge base, which can be searched without if it is damaged."""
    path = f"{commits.model_path(directory, name)}/answerability.json"
    try:
      with open(path, encoding="utf-8") as file:
        return json_fields.restored(cls, json.load(file))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
      logging.warning("searches do not know what is answerable, train again: %s: %s", path, error)
      return None


def find(
  folder: "Folder",
  question: str,
  k: int,
  *,
  where: Where | None,
  by: Ranking | None,
  exact: bool,
  min_answerable: float | None,
  explain: bool,
) -> Hits:
  """Returns the best passages and the probability; see `KnowledgeBase.search`."""
  check_question(question)
  if operator.index(k) < 1:
    raise ValueError(f"k={k}; ask for at least 1 passage")
  if min_answerable is not None and not 0 <= min_answerable <= 1:
    raise ValueError(f"min_answerable={min_answerable}; a probability is from 0 to 1")
  snapshot = folder.newest()
  if is_blank(question):  # which services refuse to embed
    snapshot.matching(where or {})  # may be wrong
    return Hits(question, (), snapshot.languages)
  memory = folder.memory.newest() if snapshot.commit.settings.memory else Memory()
  model = snapshot.answerability
  if model is not None and model.is_of(snapshot, by):
    found, features, earned = search(snapshot, question, k, where=where, exact=exact, memory=memory)
    stale = bool(found) and model.is_stale(snapshot)
    answerable = None if stale else model.probability(features, len(found))
  else:
    found, earned = snapshot.ranked(question, k, where=where, by=by, exact=exact, memory=memory)
    answerable, stale = None, False
  if min_answerable is not None and answerable is None:
    raise ValueError(
      f"min_answerable={min_answerable}, but what has learned when a search finds an answer knew "
      f"{model.num_passages:,} passages, and there are {snapshot.num_passages:,}; train again"
      if model is not None and stale
      else f"min_answerable={min_answerable}, but nothing has learned when such a search finds an "
      "answer; train with questions, of which some have an answer and some have none"
    )
  enough = min_answerable is None or (answerable is not None and answerable >= min_answerable)
  kept = tuple(found) if enough else ()
  return Hits(question, kept, snapshot.languages, answerable, earned if explain else None)


def search(
  snapshot: "Snapshot",
  question: str,
  k: int,
  *,
  memory: Memory,
  where: Where | None = None,
  exact: bool = False,
  leave_out: bool = False,
) -> tuple[list[Hit], np.ndarray, Earned]:
  """Returns the best passages by what ranks, the features of the search, and what moved them."""
  by_words = _ranking(snapshot.commit.settings) == "words"
  question_E = None if by_words or snapshot.embed is None else snapshot.embed(question)
  hits, earned = snapshot.ranked(
    question,
    max(k, _DEPTH),
    where=where,
    exact=exact,
    memory=memory,
    leave_out=leave_out,
    question_E=question_E,
  )
  features, best = _shape([hit.score for hit in hits]), []
  for by in ("words",) if question_E is None else ("words", "encoder"):
    rows, scores = snapshot.best(
      question, _DEPTH, matching=snapshot.matching(where or {}), by=by, question_E=question_E
    )
    order = np.argsort(-scores, kind="stable")[:_DEPTH]
    features += _shape(scores[order].tolist())
    best.append({*rows[order[:5]].tolist()})
  terms = snapshot.terms(question)
  found = [snapshot.terms(f"{hit.title} {hit.text}") & terms for hit in hits[:5]]
  number = max(1, len(terms))
  features += [
    float(np.log(number)),
    len(found[0]) / number if hits else 0.0,
    len(frozenset().union(*found)) / number,
    len(best[0] & best[-1]) / 5,
    *_past(memory, question, snapshot, question_E, leave_out=leave_out),
  ]
  return hits[:k], np.array(features), earned


def learn_answerability(
  snapshot: "Snapshot", questions: Sequence["Question"], *, memory: Memory, seconds: float
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
    hits, features, _ = search(snapshot, question.text, _DEPTH, memory=memory, leave_out=True)
    has = [occurs(hit.text, question.answers, regex=question.regex) for hit in hits]
    rows.append([_at(features, min(k, len(hits))) for k in _DEPTHS])
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
    ranking=_ranking(settings),
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


def _past(
  memory: Memory,
  question: str,
  snapshot: "Snapshot",
  question_E: np.ndarray | None,
  *,
  leave_out: bool,
) -> tuple[float, float]:
  """Returns the similarity of the nearest past question, and the share of near ones answered."""
  by = "words" if question_E is None else "encoder"
  recall = memory.recall(question, snapshot, by=by, question_E=question_E, leave_out=leave_out)
  similarity_Q = np.clip(recall.similarity_N, 0, 1)
  weights_Q = similarity_Q**_SHARPNESS
  share = float(weights_Q @ recall.answered) / max(float(weights_Q.sum()), 1e-12)
  return float(similarity_Q.max(initial=0)), share


def _ranking(settings: Settings) -> Ranking:
  return settings.ranking if settings.encoder else "words"


def _shape(scores: Sequence[float]) -> list[float]:
  """Returns the best of descending scores, and how it stands out; 0 is that of a missing one."""
  s = np.zeros(_DEPTH)
  s[: len(scores)] = scores[:_DEPTH]
  return [s[0], s[0] - s[1], s[0] - s[4], s[0] - s[-1], s.mean(), s.std()]


def _at(features: np.ndarray, k: int) -> np.ndarray:
  return np.append(features, np.log(np.clip(k, 1, _DEPTH)))


def _fit(rows: np.ndarray, labels: np.ndarray, penalty: float) -> np.ndarray:
  """Returns the weights of a logistic regression, by Newton's method; the last has no penalty."""
  rows, labels = rows.reshape(-1, rows.shape[-1]), labels.reshape(-1)
  penalties = np.full(rows.shape[1], penalty)
  penalties[-1] = 1e-3
  weights = np.zeros(rows.shape[1])
  for _ in range(25):
    p = _sigmoid(rows @ weights)
    gradient = rows.T @ (p - labels) + penalties * weights
    curvature = (rows * (p * (1 - p))[:, None]).T @ rows + np.diag(penalties)
    weights -= np.linalg.solve(curvature, gradient)
  return weights


def _sigmoid(logits):
  return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
