"""What is said about a search: which passages are meant, and what is remembered of it."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, cast

from realm_jax.data.answers import occurs
from realm_jax.knowledge_base.learning import search, trials
from realm_jax.knowledge_base.learning.adapter import compared
from realm_jax.knowledge_base.learning.memory_file import MemoryFile
from realm_jax.knowledge_base.learning.past_questions import (
  JudgedPassage,
  PastQuestion,
  normalized,
)
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.query import is_blank
from realm_jax.knowledge_base.store.snapshot import Snapshot

_READ = 200  # passages, the best of a question, among which one with its answer is looked for
_TESTED = 4  # past questions that are asked again when something is said
# A hit, the id of a document whose best passage is meant, or that with the place of another.
Passage = Hit | str | tuple[str, int]
Passages = Passage | Iterable[Passage]


def remember(
  memory: MemoryFile,
  snapshot: Snapshot,
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
  if not (past.answers or past.judged):
    raise ValueError(nothing)
  if both := {*past.useful} & {*past.not_useful}:
    one = min(both, key=lambda one: (one.id, one.passage))
    raise ValueError(
      f"passage {one.passage} of document {one.id!r:.60} is said to be useful and not useful; say "
      "one of them"
    )
  if past.answers:
    past = answered(snapshot, past)
  known = memory.newest()
  past = past.after(known.get(past.key))
  question_E = None
  if snapshot.embed is not None:
    question_E = snapshot.embed(question)
    past = past.with_embedding(snapshot.commit.settings.encoder, question_E)
  stale = known.untested(snapshot.num_passages, _TESTED)
  tested = {one.key: trials.test(one, snapshot, known) for one in stale}
  tested[past.key] = trials.test(past, snapshot, known, question_E=question_E)
  memory.write([past], tested)
  return past


def take_back(
  memory: MemoryFile, snapshot: Snapshot, question: str, *, passages: Passages
) -> PastQuestion | None:
  """Forgets what was said about passages of a question; see `KnowledgeBase.take_back`.

  They need not be there any more, nor have the text that they had.
  """
  named = {(one.id, one.passage) if isinstance(one, Hit) else one for one in _several(passages)}
  known = memory.newest()
  past = known.get(normalized(question))
  if past is None or not any(named & {one.id, (one.id, one.passage)} for one in past.judged):
    raise ValueError(f"nothing was said about {named!r:.60} for {question!r:.60}")
  kept = past.without_passages(named)
  if not (kept.judged or kept.answers):
    memory.forget([question])
    return None
  memory.replace({kept.key: kept}, {kept.key: trials.test(kept, snapshot, known)})
  return kept


def judged(snapshot: Snapshot, question: str, passages: Passages) -> tuple[JudgedPassage, ...]:
  """Returns passages that are given as hits or by ids; see `KnowledgeBase.feedback`."""
  hits = (_hit(snapshot, question, one) for one in _several(passages))
  return tuple(dict.fromkeys(map(JudgedPassage.of, hits)))


def answered(snapshot: Snapshot, past: PastQuestion) -> PastQuestion:
  """Returns a past question with the best passage that has one of its answers, if there is one."""
  best = (
    JudgedPassage.of(hit)
    for hit in search.hits(snapshot, past.question, _READ)
    if occurs(hit.text, past.answers, regex=past.regex)
    and JudgedPassage.of(hit) not in past.not_useful
  )
  return dataclasses.replace(past, useful=tuple(dict.fromkeys((*past.useful, *islice(best, 1)))))


def _several(passages: Passages) -> Iterable[Passage]:
  is_pair = isinstance(passages, tuple) and [*map(type, passages)] == [str, int]
  one = is_pair or isinstance(passages, (str, bytes, Hit)) or not isinstance(passages, Iterable)
  return cast(Iterable[Passage], (passages,) if one else passages)


def _hit(snapshot: Snapshot, question: str, passage: Passage) -> Hit:
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
    are_its = lambda found: (rows.start <= found) & (found < rows.stop)  # noqa: E731
    question_E = compared(snapshot, snapshot.embed(question)) if snapshot.embed else None
    best, *_ = snapshot.best(question, 1, matching=are_its, question_E=question_E)
    return snapshot.hit(int(best[0]) if len(best) else rows[0])
  if not 0 <= number < len(rows):
    raise ValueError(f"document {id!r:.60} has {len(rows)} passages, not {number}; counted from 0")
  hit = snapshot.hit(rows[number])
  if text not in (None, hit.text):
    raise ValueError(f"document {id!r:.60} has another text by now; nothing was remembered")
  return hit
