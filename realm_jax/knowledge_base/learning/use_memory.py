"""What a knowledge base remembers of its use: past questions, and what they make of a search.

A passage that was useful for a question is lifted for questions like it, without any training:

  score(x, z) + spread(x) · max over past questions x' of strength(x, x') · closeness(x, x')

x' are those that z was useful for; those that it was not useful for lower it likewise. Closeness is
0 up to a similarity of THRESHOLD, and 1 for the same question; the spread is the distance of the
best score from the mean. The same question has a strength of STRENGTH. Others earn theirs: it is
the one that would have served the past questions nearest to x best, each asked without what is
known of itself (`trials.py`), or 0. So one record, true or false, moves a passage by at most
STRENGTH of that distance, and where no past question is similar, scores are the same to the bit.
"""

import base64
import collections
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from realm_jax.knowledge_base.learning.past_questions import (
  JudgedPassage,
  PastQuestion,
  digest,
  normalized,
)
from realm_jax.knowledge_base.learning.question_similarity import (
  Column,
  Directions,
  Embeddings,
  Words,
)
from realm_jax.knowledge_base.store.commits import Ranking
from realm_jax.knowledge_base.store.hits import Earned
from realm_jax.knowledge_base.store.snapshot import Ranked, Snapshot

FILE = "memory.jsonl"
STRENGTH = 0.8  # of the same question
STRENGTHS = (0.05, 0.1, 0.2, 0.4, STRENGTH)  # of others
THRESHOLD = 0.6
_CONSIDERED = 100  # past questions of a search, the most similar ones
# A strength is earned from the nearest trials, of which there have to be some.
_NEAREST, _FEWEST = 30, 10
_NEAR, _SURER, _LEAST, _NEARLY = 0.2, 0.1, 1e-3, 0.9
_CHANGED = 0.2  # share of the passages, after which trials are stale


class Lift(NamedTuple):
  """How far a passage is moved, as a share of the spread, and the question it was useful for."""

  share: float
  question: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
  """What the memory of other questions would have made of a past one.

  Attributes:
    gains: By ranking, what each of STRENGTHS would have gained, and the spread of the search.
    num_questions: Past questions when it was made.
    num_passages: Passages when it was made.
  """

  gains: dict[str, tuple[float, ...]]
  num_questions: int
  num_passages: int

  def __post_init__(self):
    numbers = np.array([*self.gains.values()], float).reshape(-1, len(STRENGTHS) + 1)
    if not (np.isfinite(numbers).all() and len(numbers) == len(self.gains)):
      raise ValueError(f"gains={self.gains!r:.60}; there are {len(STRENGTHS) + 1} for each ranking")
    np.array([self.num_questions, self.num_passages], np.int64)  # raises if it is too large


class _Columns:
  """What is known of all questions that were ever remembered, row by row."""

  def __init__(self):
    self.records: list[PastQuestion] = []
    self.rows: dict[str, int] = {}  # of the newest record of each key
    self.of_document: dict[str, list[int]] = {}
    self.useful = Column(dtype=bool, fill=False)
    self.tested = Column((2,), dtype=int, fill=0)  # numbers of questions and passages
    # By ranking: gains, and the spread; 0 without a trial.
    self.trials: collections.defaultdict[str, Column] = collections.defaultdict(
      lambda: Column((len(STRENGTHS) + 1,), dtype=float, fill=0)
    )
    self.removed: list[int] = []
    self._embeddings: dict[tuple[str, int], Embeddings] = {}  # by encoder and width
    self._words: dict[tuple[str, ...], Words] = {}
    self.lock = threading.Lock()

  def add(self, record: PastQuestion) -> int:
    row = len(self.records)
    if record.embedding:
      with contextlib.suppress(ValueError):  # one that is damaged is embedded anew
        content = base64.b64decode(record.embedding, validate=True)
        self._set_embedding(record.encoder, row, np.frombuffer(content, "<f2"))
    self.records.append(dataclasses.replace(record, embedding=""))
    self.useful[row] = bool(record.useful)
    self.tested[row] = 0
    for one in record.judged:
      self.of_document.setdefault(one.id, []).append(row)
    self.rows[record.key] = row
    return row

  def _set_embedding(self, encoder: str, row: int, vector_E: np.ndarray) -> None:
    if (kind := (encoder, len(vector_E))) not in self._embeddings:
      self._embeddings[kind] = Embeddings(len(vector_E))
    as_written_E = np.nan_to_num(vector_E.astype(np.float16)).astype(np.float32)
    self._embeddings[kind][row] = as_written_E

  def embeddings(self, snapshot: Snapshot, live_N: np.ndarray) -> Directions:
    """Returns the embeddings of the questions that are live."""
    name, embed, number = snapshot.commit.settings.encoder, snapshot.embed, len(live_N)
    assert embed is not None, "a question was embedded"
    kind = name, snapshot.segments[0].embedding_size
    with self.lock:
      of_encoder = self._embeddings.get(kind)
      unknown_N = live_N & (of_encoder.first(number).lengths_N < 0 if of_encoder else True)
      for row in np.flatnonzero(unknown_N).tolist():
        self._set_embedding(name, row, embed(self.records[row].question))
      return self._embeddings[kind].first(number)

  def by_words(self, question: str, snapshot: Snapshot) -> np.ndarray:
    """Returns the similarity `[N]` of a question to all others."""
    with self.lock:
      words = self._words.setdefault(snapshot.languages, Words())
      for record in self.records[words.num_added :]:
        words.add(snapshot.terms(record.question))
      for row in self.removed[words.num_removed :]:
        words.remove(row)
      return words.similarity(snapshot.terms(question))


class Memory:
  """The past questions of a knowledge base at one time; safe to use from several threads.

  One that follows from another shares all with it but which questions are remembered.
  """

  def __init__(self, records: Iterable[PastQuestion] = ()):
    self._columns, self._live_N = _Columns(), np.zeros(0, bool)
    self._live_N = self.changed(records)._live_N

  def changed(self, records: Iterable[PastQuestion], *, gone: Iterable[str] = ()) -> "Memory":
    """Returns the memory with questions in place of the same ones; this is the newest one."""
    columns, after, dead = self._columns, Memory.__new__(Memory), []
    with columns.lock:
      for key in gone:
        dead.append(columns.rows.pop(key))
      for record in records:
        if (before := columns.rows.pop(record.key, None)) is not None:  # the newest is the last
          dead.append(before)
        columns.add(record)
      columns.removed += dead
      after._columns, after._live_N = columns, np.ones(len(columns.records), bool)
    after._live_N[: len(self._live_N)] = self._live_N
    after._live_N[dead] = False
    return after

  def __len__(self) -> int:
    return int(np.count_nonzero(self._live_N))

  @functools.cached_property
  def records(self) -> Mapping[str, PastQuestion]:
    """Past questions by their keys, the newest last."""
    records = (self._columns.records[row] for row in np.flatnonzero(self._live_N).tolist())
    return {record.key: record for record in records}

  def get(self, key: str) -> PastQuestion | None:
    """Returns a past question."""
    row = self._row(key)
    return None if row is None else self._columns.records[row]

  def _row(self, key: str) -> int | None:
    row = self._columns.rows.get(key)
    return row if row is not None and row < len(self._live_N) and self._live_N[row] else None

  def embedding(self, key: str, snapshot: Snapshot) -> np.ndarray | None:
    """Returns the embedding of a past question; None without an encoder."""
    if snapshot.embed is None or (row := self._row(key)) is None:
      return None
    known = self._columns.embeddings(snapshot, self._live_N)
    return known.units_NxE[row] * known.lengths_N[row]

  def about(self, documents: Iterable[str]) -> list[PastQuestion]:
    """Returns the questions for which passages of some documents were judged."""
    rows = {row for id in documents for row in self._columns.of_document.get(id, ())}
    return [self._columns.records[row] for row in sorted(rows) if self._live_N[row]]

  @property
  def documents(self) -> Collection[str]:
    """Documents of which passages were judged, and maybe some of which they no longer are."""
    return self._columns.of_document.keys()

  def add_trial(self, key: str, trial: Trial) -> None:
    """Keeps what a trial has shown of a past question."""
    if (row := self._row(key)) is None:
      return
    nothing = (0.0,) * (len(STRENGTHS) + 1)
    for ranking in self._columns.trials.keys() | trial.gains.keys():
      of_ranking = self._columns.trials[ranking]
      of_ranking[row] = trial.gains.get(ranking, nothing)
    self._columns.tested[row] = trial.num_questions, trial.num_passages

  def trial(self, key: str) -> Trial | None:
    """Returns the trial of a past question, if there was one."""
    row = self._row(key)
    if row is None or not (tested := self._columns.tested.first(row + 1)[row]).any():
      return None
    found = {by: of.first(row + 1)[row].tolist() for by, of in self._columns.trials.items()}
    gains = {by: tuple(of) for by, of in found.items() if of[-1]}
    return Trial(gains=gains, num_questions=int(tested[0]), num_passages=int(tested[1]))

  def untested(self, num_passages: int, count: int | None = None) -> list[PastQuestion]:
    """Returns questions without a trial, then those whose trial is stale, oldest first.

    That is so with twice or half as many questions, or if the passages changed by a fifth.
    """
    tested_Nx2 = self._columns.tested.first(number := len(self._live_N))
    then_N, now = tested_Nx2[:, 0], len(self)
    passages_N = np.abs(tested_Nx2[:, 1] - num_passages) > _CHANGED * tested_Nx2[:, 1]
    stale_N = (now >= 2 * then_N) | (2 * now <= then_N) | passages_N
    rows = np.flatnonzero(self._live_N & self._columns.useful.first(number) & stale_N)
    rows = rows[np.argsort(then_N[rows], kind="stable")][:count]
    return [self._columns.records[row] for row in rows.tolist()]

  def recall(
    self,
    question: str,
    snapshot: Snapshot,
    *,
    question_E: np.ndarray | None = None,
    leave_out: bool = False,
  ) -> "Recall":
    """Returns what is remembered of questions like one.

    Args:
      question_E: Its embedding, which tells what is similar; None compares words.
      leave_out: Whether what is known of this very question is left out, as when measuring.
    """
    same = self._row(normalized(question))
    if not len(self):
      similarity_N = np.zeros(len(self._live_N))
    elif question_E is None:
      similarity_N = self._columns.by_words(question, snapshot)[: len(self._live_N)]
    else:
      known = self._columns.embeddings(snapshot, self._live_N)
      similarity_N = known.similarity(question_E, self._live_N)
    similarity_N = np.where(self._live_N, similarity_N, -1)
    if same is not None:
      similarity_N[same] = -1 if leave_out else 1
    same = None if leave_out else same
    return Recall(columns=self._columns, similarity_N=similarity_N, same=same)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Recall:
  """What is remembered of questions like one.

  Attributes:
    similarity_N: Of past questions; -1 of those that do not count.
    same: The row of the very question.
  """

  columns: _Columns
  similarity_N: np.ndarray
  same: int | None

  def earned(self, spread: float, *, by: Ranking) -> Earned:
    """Returns how far similar questions move passages, and which past questions have shown it.

    A trial counts by its similarity, and less if its search stood out less: where the best score
    is far from the mean, memory has more to spoil than there. The highest strength is taken of
    those that gained nearly as much as any.

    Args:
      spread: Distance of the best score from the mean.
      by: What ranks.
    """
    if by not in self.columns.trials:
      return Earned()
    trials_NxS = self.columns.trials[by].first(len(self.similarity_N))
    near = np.flatnonzero((self.similarity_N > _NEAR) & (trials_NxS[:, -1] > 0))
    surer = np.maximum(0, np.log(max(spread, 1e-9) / trials_NxS[near, -1]))
    weights = (self.similarity_N[near] - _NEAR) * np.exp(-((surer / _SURER) ** 2))
    best = np.argsort(-weights, kind="stable")[:_NEAREST]
    best = best[weights[best] > _LEAST]
    if len(best) < _FEWEST:
      return Earned()
    gained_RxS = weights[best, None] * trials_NxS[near[best], :-1]
    gained_S = gained_RxS.sum(axis=0)
    if gained_S.max() <= 0:
      return Earned()
    chosen = int(np.flatnonzero(gained_S >= _NEARLY * gained_S.max())[-1])
    gained = sorted(zip(-gained_RxS[:, chosen], near[best].tolist(), strict=True))
    questions = tuple(self.columns.records[row].question for gain, row in gained if gain < 0)
    return Earned(strength=STRENGTHS[chosen], questions=questions)

  @property
  def answered(self) -> np.ndarray:
    """Which past questions have a useful passage, `[N]`."""
    return self.columns.useful.first(len(self.similarity_N))

  def lifts(self, snapshot: Snapshot, *, strength: float) -> dict[int, Lift]:
    """Returns the passages that are moved, by their rows, if similar questions have a strength."""
    closeness_N = np.clip((self.similarity_N - THRESHOLD) / (1 - THRESHOLD), 0, 1)
    similar = np.flatnonzero(closeness_N) if strength else np.zeros(0, int)
    similar = similar[np.argsort(-closeness_N[similar], kind="stable")][:_CONSIDERED].tolist()
    shares = {row: strength * float(closeness_N[row]) for row in similar if row != self.same}
    if self.same is not None:
      shares = {self.same: STRENGTH, **shares}
    lifted: dict[int, Lift] = {}
    lowered: dict[int, float] = {}
    records = [self.columns.records[row] for row in shares]
    row_of = rows_of(snapshot, [one for record in records for one in record.judged])
    for record, share in zip(records, shares.values(), strict=True):
      for one in record.useful:
        lifted.setdefault(row_of[one], Lift(share, record.question))
      for one in record.not_useful:
        lowered.setdefault(row_of[one], share)
    moved = {}
    for row in sorted((lifted.keys() | lowered.keys()) - {-1}):
      lift = lifted.get(row, Lift(0.0))
      if share := lift.share - lowered.get(row, 0.0):
        moved[row] = Lift(share, lift.question if share > 0 else "")
    return moved


def moved(found: Ranked, distance_R: np.ndarray, *, by: Ranking) -> np.ndarray:
  """Returns the scores of passages that are moved.

  By words, a passage that shares none with the question is found only if it is lifted; the score of
  another is -inf.
  """
  scores_R = (found.scores + distance_R).astype(found.scores.dtype)
  if by == "words":
    scores_R[(found.scores <= 0) & (scores_R <= 0)] = -np.inf
  return scores_R


def rows_of(snapshot: Snapshot, passages: Sequence[JudgedPassage]) -> Mapping[JudgedPassage, int]:
  """Returns the rows of passages that are there with the same text, and -1 for others."""
  known = snapshot.judged_rows
  new = [one for one in dict.fromkeys(passages) if one not in known]
  for one, place in zip(new, snapshot.find([one.id for one in new]), strict=True):
    rows = snapshot.rows_of(place) if place else range(0)
    there = [*rows[one.passage : one.passage + 1], *rows]
    known[one] = next((row for row in there if digest(snapshot.hit(row).text) == one.digest), -1)
  return known


def rows(snapshot: Snapshot, passages: Sequence[JudgedPassage]) -> list[int]:
  """Returns the rows of those that are there with the same text."""
  row_of = rows_of(snapshot, passages)
  return [row_of[one] for one in passages if row_of[one] >= 0]
