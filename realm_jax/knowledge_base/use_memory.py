"""What a knowledge base remembers of its use: past questions, and the passages that answered them.

A passage that was useful for a question is lifted for questions like it, without any training:

  score(x, z) + STRENGTH · spread(x) · max over past questions x' of closeness(x, x')

x' are those that z was useful for; those that it was not useful for lower it likewise. Closeness is
0 up to a similarity of THRESHOLD, and 1 for the same question. The spread is the distance of the
best score from the mean. So one record, true or false, moves a passage by at most STRENGTH of that
distance, and where no past question is similar, scores are the same to the bit.
"""

import base64
import collections
import dataclasses
import glob
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from absl import logging

from realm_jax.data.answers import occurs
from realm_jax.foundations import atomic_files, json_fields, plain_files, text_files
from realm_jax.knowledge_base.hits import Hit, is_blank

if TYPE_CHECKING:
  from realm_jax.knowledge_base.snapshot import Snapshot

FILE = "memory.jsonl"
_PRIVATE = 0o600  # what somebody asked is nobody else's business
STRENGTH = 0.8
THRESHOLD = 0.6
_CONSIDERED = 100  # past questions of a search, the most similar ones
_READ = 200  # passages, the best of a question, among which one with its answer is looked for
_SPARE_LINES = 1000  # that are replaced by later ones, before a file is written anew
# A hit, the id of a document whose best passage is meant, or that with the place of another.
Passage = Hit | str | tuple[str, int]
Passages = Passage | Iterable[Passage]
_WRONG = (ValueError, TypeError, LookupError, AttributeError)  # of a line that is no record


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedPassage:
  """A passage that was useful or not.

  Attributes:
    id: The document that it is of.
    passage: Its place in the document, from 0.
    digest: Of its text; it is not meant once it has another one.
  """

  id: str
  passage: int
  digest: str

  @classmethod
  def of(cls, hit: Hit) -> "JudgedPassage":
    """Returns the passage of a hit."""
    return cls(id=hit.id, passage=hit.passage, digest=_digest(hit.text))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastQuestion:
  """A question that was asked, and what was said about it.

  Attributes:
    answers: Answers that were given; passages need not have them.
    regex: Whether the answers are regular expressions.
    time: When, in seconds since 1970.
    encoder: Name of the model of the embedding.
    embedding: Of the question: float16, in base 64.
  """

  question: str
  useful: tuple[JudgedPassage, ...] = ()
  not_useful: tuple[JudgedPassage, ...] = ()
  answers: tuple[str, ...] = ()
  regex: bool = False
  time: float = 0.0
  encoder: str = dataclasses.field(default="", repr=False)
  embedding: str = dataclasses.field(default="", repr=False)

  @property
  def key(self) -> str:
    """What it has in common with the same question in other letters and spaces."""
    return _normalized(self.question)

  @property
  def summary(self) -> dict[str, Any]:
    """What was said, as JSON has it."""
    return {
      "question": self.question,
      "answers": self.answers,
      "useful": [[one.id, one.passage] for one in self.useful],
      "not_useful": [[one.id, one.passage] for one in self.not_useful],
      "time": self.time,
    }

  def after(self, before: "PastQuestion | None") -> "PastQuestion":
    """Returns it with what was said before, unless it says something else."""
    if before is None:
      return self
    new = {*self.useful, *self.not_useful}
    return dataclasses.replace(
      self,
      useful=(*self.useful, *(one for one in before.useful if one not in new)),
      not_useful=(*self.not_useful, *(one for one in before.not_useful if one not in new)),
      answers=self.answers or before.answers,
      regex=self.regex if self.answers else before.regex,
    )

  def with_embedding(self, encoder: str, question_E: np.ndarray) -> "PastQuestion":
    """Returns it with the embedding of the question."""
    content = base64.b64encode(question_E.astype("<f2").tobytes()).decode()
    return dataclasses.replace(self, encoder=encoder, embedding=content)


class Lift(NamedTuple):
  """How far a passage is moved, between -1 and 1, and the question that it was useful for."""

  share: float
  question: str = ""


class Memory:
  """The past questions of a knowledge base at one time; safe to use from several threads.

  Args:
    records: Past questions by their keys.
    known: What was computed for them: embeddings by the name of the encoder and the key, words by
      "" and the key. What is missing is added.
  """

  def __init__(self, records: Mapping[str, PastQuestion], known: dict[tuple[str, str], Any]):
    self.records = records
    self._places = {key: place for place, key in enumerate(records)}
    self._known = known
    self._words: _Words | None = None
    self._embedded: dict[str, np.ndarray] = {}

  def lifts(
    self,
    question: str,
    snapshot: "Snapshot",
    *,
    question_E: np.ndarray | None = None,
    leave_out: bool = False,
  ) -> dict[int, Lift]:
    """Returns the passages of a snapshot that are moved for a question, by their rows.

    Args:
      question_E: Its embedding, which tells what is similar; None compares words.
      leave_out: Whether what is known of this very question is left out, as when measuring.
    """
    if not self.records:
      return {}
    similarity_Q = self.similarity(question, snapshot, question_E)
    closeness_Q = (similarity_Q - THRESHOLD) / (1 - THRESHOLD)
    same = self._places.get(_normalized(question))
    if same is not None:
      closeness_Q[same] = 0 if leave_out else 1
    similar = np.flatnonzero(closeness_Q > 0)
    similar = similar[np.argsort(-closeness_Q[similar], kind="stable")[:_CONSIDERED]]
    records = [*self.records.values()] if len(similar) else []
    lifted: dict[int, Lift] = {}
    lowered: dict[int, float] = {}
    for place in similar.tolist():
      past, close = records[place], min(float(closeness_Q[place]), 1.0)
      for row in rows(snapshot, past.useful):
        lifted.setdefault(row, Lift(close, past.question))
      for row in rows(snapshot, past.not_useful):
        lowered.setdefault(row, close)
    moved = {}
    for row in lifted.keys() | lowered.keys():
      lift = lifted.get(row, Lift(0.0))
      if share := lift.share - lowered.get(row, 0.0):
        moved[row] = Lift(share, lift.question if share > 0 else "")
    return moved

  def similarity(
    self, question: str, snapshot: "Snapshot", question_E: np.ndarray | None
  ) -> np.ndarray:
    if question_E is None:
      if self._words is None:
        self._words = _Words(self._computed("", snapshot.terms))
      return self._words.similarity(snapshot.terms(question))
    encoder, embed = snapshot.commit.settings.encoder, snapshot.embed
    assert embed is not None, "a question was embedded"
    if encoder not in self._embedded:
      past_QxE = np.stack(self._computed(encoder, lambda text: embed(text).astype(np.float16)))
      self._embedded[encoder] = _unit(past_QxE.astype(np.float32))
    return self._embedded[encoder] @ _unit(question_E)

  def _computed(self, kind: str, compute: Callable[[str], Any]) -> list[Any]:
    for key, past in self.records.items():
      if (kind, key) not in self._known:
        self._known[kind, key] = compute(past.question)
    return [self._known[kind, key] for key in self.records]


class _Words:
  """Compares questions by their words: the cosine of vectors of inverse frequencies.

  Args:
    questions: The words of past questions, among which frequencies are counted.
  """

  def __init__(self, questions: Sequence[frozenset[str]]):
    self._number = len(questions)
    self._places: dict[str, list[int]] = collections.defaultdict(list)
    for place, words in enumerate(questions):
      for word in words:
        self._places[word].append(place)
    self._squares_Q = np.zeros(len(questions))
    for word, places in sorted(self._places.items()):  # sums do not depend on hashes
      self._squares_Q[places] += self._square(word)

  def _square(self, word: str) -> float:
    return math.log((self._number + 1) / (len(self._places.get(word, ())) + 0.5)) ** 2

  def similarity(self, words: frozenset[str]) -> np.ndarray:
    """Returns the similarity `[Q]` of a question to the past ones."""
    products_Q, square = np.zeros(self._number), 0.0
    for word in sorted(words):
      products_Q[self._places.get(word, [])] += self._square(word)
      square += self._square(word)
    return products_Q / np.sqrt(np.maximum(square * self._squares_Q, 1e-12))


class MemoryFile:
  """The past questions in a folder; safe to use from several threads.

  Each is a line of JSON, which counts until one with the same question follows. Lines are appended
  and flushed to disk; one that a killed process left unfinished is passed over, and removed before
  the next. Only who holds the lock of the folder may write.
  """

  def __init__(self, directory: str):
    self._path = os.path.join(directory, FILE)
    self._reading = threading.Lock()
    self._read: tuple[tuple[int, int], int, int] | None = None  # file, size and time
    self._file: IO[bytes] | None = None  # stays open, so that no other file gets its inode
    self._forget()

  def _forget(self) -> None:
    if self._file is not None:
      self._file.close()
      self._file = None
    self._end = self._num_lines = 0
    self._known: dict[tuple[str, str], Any] = {}
    self._memory = Memory({}, self._known)

  def newest(self) -> Memory:
    """Returns the newest memory."""
    if self._stat() != self._read:
      with self._reading:
        now = self._stat()
        if not now or not self._read or now[0] != self._read[0] or now[1] < self._end:
          self._forget()
        if now:
          records = {**self._memory.records}
          for record in self._lines():
            records.pop(record.key, None)  # the newest is the last
            records[record.key] = record
          self._memory = Memory(records, self._known)
        self._read = now
    return self._memory

  def _stat(self) -> tuple[tuple[int, int], int, int] | None:
    try:
      stat = os.stat(self._path)
    except FileNotFoundError:
      return None
    return (stat.st_dev, stat.st_ino), stat.st_size, stat.st_mtime_ns

  def _lines(self) -> Iterator[PastQuestion]:
    """Yields the records after those that were read, as far as lines are whole."""
    if self._file is None:
      self._file = plain_files.open_plain(self._path)
    size = os.fstat(self._file.fileno()).st_size - self._end
    # Without a position, which forked processes would share.
    lines = os.pread(self._file.fileno(), size, self._end).split(b"\n")
    for line in lines[:-1]:
      self._end += len(line) + 1
      self._num_lines += 1
      try:
        record = json_fields.restored(PastQuestion, text_files.parse_json(line))
        content = np.frombuffer(base64.b64decode(record.embedding), "<f2")
        if record.key and len(content):
          self._known[record.encoder, record.key] = content
        yield dataclasses.replace(record, embedding="")
      except _WRONG as error:
        logging.warning("skipped a damaged line of %s: %s", self._path, error)

  def write(self, records: Iterable[PastQuestion]) -> None:
    """Adds past questions, in place of what was known of the same ones."""
    memory, records = self.newest(), [*records]
    if self._num_lines + len(records) > 2 * len(memory.records) + _SPARE_LINES:
      self.replace({**memory.records, **{record.key: record for record in records}}.values())
      return
    with plain_files.open_plain(self._path, "ab", permissions=_PRIVATE) as file:
      file.truncate(self._end)
      file.write(b"".join(map(self._line, records)))
      atomic_files.close(file)
    if not self._read:
      atomic_files.sync_directory(os.path.dirname(self._path))

  def replace(self, records: Iterable[PastQuestion]) -> None:
    """Writes past questions in place of all."""
    folder, name = os.path.split(self._path)
    for left in glob.glob(os.path.join(glob.escape(folder), f".{name}.*")):
      os.unlink(left)  # by a killed process
    content = b"".join(map(self._line, records))
    if content:
      atomic_files.write_bytes(self._path, content, mode=_PRIVATE)
    elif self._stat():
      os.unlink(self._path)
      atomic_files.sync_directory(folder)

  def forget(self, questions: Iterable[str]) -> int:
    """Removes past questions, and returns how many they are; see `KnowledgeBase.forget`."""
    records = self.newest().records
    keys = {_normalized(question): question for question in questions}
    if unknown := [question for key, question in keys.items() if key not in records]:
      raise ValueError(f"no question {unknown[0]!r:.60} is remembered; none was forgotten")
    self.replace(past for key, past in records.items() if key not in keys)
    return len(keys)

  def drop_missing(self, snapshot: "Snapshot") -> None:
    """Removes what was said about documents that are gone."""
    records = self.newest().records
    ids = {one.id for past in records.values() for one in (*past.useful, *past.not_useful)}
    places = zip(ids, snapshot.find([*ids]), strict=True)
    if gone := {id for id, place in places if place is None}:
      self.replace(filter(None, (_without(past, gone) for past in records.values())))

  def _line(self, record: PastQuestion) -> bytes:
    if record.encoder and not record.embedding and (record.encoder, record.key) in self._known:
      record = record.with_embedding(record.encoder, self._known[record.encoder, record.key])
    return json.dumps(json_fields.as_json(record)).encode() + b"\n"


def moved(
  snapshot: "Snapshot",
  found: tuple[np.ndarray, np.ndarray],
  lifts: Mapping[int, Lift],
  *,
  best: Callable[..., tuple[np.ndarray, np.ndarray]],
  matching: Callable[[np.ndarray], np.ndarray] | None,
  mean: float,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns passages that were found and those that are moved, with their scores after that.

  Args:
    found: Rows of the best passages, and their scores.
    best: `(k, matching=...)`, returns the same of other passages.
    matching: Tells which of some passages are searched; None for all.
    mean: The mean score of all passages.
  """
  rows, scores = found
  lifted = np.array(sorted(lifts))
  if matching is not None:
    lifted = lifted[matching(lifted)]
  if not len(lifted):
    return found
  # Some may not be among the best, or share no word with the question.
  own = dict(zip(*best(len(lifted), matching=_among(snapshot, lifted)), strict=True))
  spread = float(scores.max(initial=mean)) - mean or 1.0
  after = [own.get(row, 0.0) + STRENGTH * spread * lifts[row].share for row in lifted.tolist()]
  kept = ~np.isin(rows, lifted)
  return np.append(rows[kept], lifted), np.append(scores[kept], np.array(after, scores.dtype))


def remember(
  memory: MemoryFile,
  snapshot: "Snapshot",
  question: str,
  *,
  answer: str | Sequence[str],
  useful: Passages,
  not_useful: Passages,
) -> PastQuestion:
  """Remembers what was said about a question, and returns it; see `KnowledgeBase.feedback`."""
  several = isinstance(answer, Iterable) and not isinstance(answer, str)
  answers: list[Any] = [*answer] if several else [answer]
  if wrong := [one for one in answers if not isinstance(one, str)]:
    raise ValueError(f"answer={wrong[0]!r:.60} is no text; nothing was remembered")
  nothing = f"feedback({question!r:.60}) says nothing; give answer, useful or not_useful"
  if is_blank(question):
    raise ValueError(nothing)
  past = PastQuestion(
    question=question,
    useful=judged(snapshot, question, useful),
    not_useful=judged(snapshot, question, not_useful),
    answers=tuple(one for one in answers if not is_blank(one)),
    time=time.time(),
  )
  if not (past.answers or past.useful or past.not_useful):
    raise ValueError(nothing)
  if past.answers:
    past = answered(snapshot, past)
  past = past.after(memory.newest().records.get(past.key))
  if snapshot.embed is not None:
    past = past.with_embedding(snapshot.commit.settings.encoder, snapshot.embed(question))
  memory.write([past])
  return past


def judged(snapshot: "Snapshot", question: str, passages: Passages) -> tuple[JudgedPassage, ...]:
  """Returns passages that are given as hits or by ids; see `KnowledgeBase.feedback`."""
  hits = (_hit(snapshot, question, one) for one in _several(passages))
  return tuple(dict.fromkeys(map(JudgedPassage.of, hits)))


def answered(snapshot: "Snapshot", past: PastQuestion) -> PastQuestion:
  """Returns a past question with the best passage that has one of its answers, if there is one."""
  best = (
    JudgedPassage.of(hit)
    for hit in snapshot.search(past.question, _READ)
    if occurs(hit.text, past.answers, regex=past.regex)
  )
  return dataclasses.replace(past, useful=tuple(dict.fromkeys((*past.useful, *islice(best, 1)))))


def _several(passages: Passages) -> Iterable[Passage]:
  is_pair = isinstance(passages, tuple) and [*map(type, passages)] == [str, int]
  one = is_pair or isinstance(passages, (str, int, Hit))
  return cast(Iterable[Passage], (passages,) if one else passages)


def _hit(snapshot: "Snapshot", question: str, passage: Passage) -> Hit:
  number = text = None
  if isinstance(passage, Hit):
    id, number, text = passage.id, passage.passage, passage.text
  elif isinstance(passage, tuple):
    id, number = passage
  else:
    id = passage
  (place,) = snapshot.find([id])
  if place is None:
    raise ValueError(f"there is no document {id!r:.60}; nothing was remembered")
  rows = snapshot.rows_of(place)
  if number is None:
    best, _ = snapshot.best(question, 1, matching=_among(snapshot, rows))
    return snapshot.hit(int(best[0]) if len(best) else rows[0])
  if not 0 <= number < len(rows):
    raise ValueError(f"document {id!r:.60} has {len(rows)} passages, not {number}; counted from 0")
  hit = snapshot.hit(rows[number])
  if text not in (None, hit.text):
    raise ValueError(f"document {id!r:.60} has another text by now; nothing was remembered")
  return hit


def _among(snapshot: "Snapshot", rows: Sequence[int] | np.ndarray) -> Callable[[Any], np.ndarray]:
  """Returns a condition that these passages alone satisfy."""
  mask_N = np.zeros(len(snapshot.live_N), bool)
  mask_N[rows] = True
  return mask_N.__getitem__


def rows(snapshot: "Snapshot", passages: Sequence[JudgedPassage]) -> Iterator[int]:
  """Yields the rows of passages that are there with the same text."""
  for one, place in zip(passages, snapshot.find([one.id for one in passages]), strict=True):
    rows = snapshot.rows_of(place) if place else range(0)
    for row in [*rows[one.passage : one.passage + 1], *rows]:
      if _digest(snapshot.hit(row).text) == one.digest:
        yield row
        break


def _without(past: PastQuestion, gone: set[str]) -> PastQuestion | None:
  """Returns a past question without documents; None if nothing else was said about it."""
  useful = tuple(one for one in past.useful if one.id not in gone)
  not_useful = tuple(one for one in past.not_useful if one.id not in gone)
  if (useful, not_useful) == ((), ()) != (past.useful, past.not_useful):
    return None
  return dataclasses.replace(past, useful=useful, not_useful=not_useful)


def _normalized(question: str) -> str:
  return " ".join(question.casefold().split())


def _digest(text: str) -> str:
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _unit(vectors: np.ndarray) -> np.ndarray:
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(lengths > 0, lengths, 1)
