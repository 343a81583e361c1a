"""Chooses what a knowledge base searches with: what ranks, memory, and what questions trained.

Questions that nothing learned from are asked of every candidate. One is taken instead of what is in
use if it finds answers to more of them, corrected for the number of candidates (Holm 1979); if it
was trained, also than the same ranking without it; and if titles find their documents as before.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from realm_jax.data.questions import Question
from realm_jax.evaluation import probes, resampling
from realm_jax.evaluation.probes import Choice
from realm_jax.evaluation.ranking_metrics import first_right
from realm_jax.foundations import progress
from realm_jax.knowledge_base.encoders import models
from realm_jax.knowledge_base.encoders.models import Encoder
from realm_jax.knowledge_base.folder import Folder
from realm_jax.knowledge_base.learning import feedback, search, trials
from realm_jax.knowledge_base.learning import query_training as learning
from realm_jax.knowledge_base.learning.adapter import Seen
from realm_jax.knowledge_base.learning.answerability_training import learn_answerability
from realm_jax.knowledge_base.learning.evaluation import found_answers
from realm_jax.knowledge_base.learning.past_questions import PastQuestion
from realm_jax.knowledge_base.learning.use_memory import Memory, Trial
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.commits import Ranking
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.snapshot import Snapshot
from realm_jax.knowledge_base.training_questions import key_of

_MOST_HELD_OUT = 500  # questions to compare by
_HELD_OUT = 5  # one of so many groups of questions is held out
_OFTEN = 0.05  # share of the questions, above which those for one passage are no group
_FEWEST_ASKED = 10
_START, _FORGETFUL = "start", "without memory"
_FIGURE, _TITLES = "recall@5", "titles"  # what has to rise, and not to fall
_NUM_TITLES, _DEPTH = 200, 10
_LEVEL = 0.05
_LAST_SHARE = 0.1  # of the time, to learn what is answerable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """What may search from now on.

  Attributes:
    snapshot: The documents, with what embeds questions.
    ranking: What ranks.
    memory: Past questions, as they are known before the questions that are asked.
    like: The candidate that it differs from by what was trained alone; "" if nothing was.
    write: Writes what was trained into a knowledge base, and returns the settings it changes.
  """

  snapshot: Snapshot
  ranking: Ranking
  memory: Memory | None
  like: str = ""
  write: Callable[[str], dict[str, Any]] = lambda _: {}

  def search(self, question: str, k: int) -> list:
    """Returns the best passages."""
    return search.hits(self.snapshot, question, k, by=self.ranking, memory=self.memory)


def choose_ranking(folder: Folder, *, create: Callable[..., Any]) -> Choice:
  """Chooses between words, the encoder and both by titles and sentences of the documents.

  Args:
    create: Makes another knowledge base; see `KnowledgeBase.create`.
  """
  snapshot = folder.newest()
  settings = snapshot.commit.settings
  encoder = folder.encoder(settings.encoder)
  if isinstance(encoder, Encoder):
    encoder = commits.model_path(folder.path, settings.encoder)
  documents = map(snapshot.document, snapshot.documents(slice(None)))
  made = probes.make(documents, language=snapshot.languages[0])
  with tempfile.TemporaryDirectory() as temporary:
    path = os.path.join(temporary, "kb")
    create(
      path,
      [{"id": document.id, "text": document.text} for document in made.documents],
      language=settings.languages,
      passage_words=settings.passage_words,
      encoder=encoder,
    )
    searched = Folder(path, encoder=None if isinstance(encoder, str) else encoder).newest()
    choice = probes.choose(
      {
        ranking: functools.partial(search.document_ids, searched, by=ranking)
        for ranking in commits.RANKINGS
      },
      made.queries,
      start=settings.ranking,
    )
  with folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking=choice.chosen)
  return choice


def train(folder: Folder, questions: Sequence[Question], *, seconds: float) -> Choice:
  """Remembers questions, and uses what learned from them if others find more answers."""
  started, start = time.monotonic(), folder.newest()

  def left() -> float:
    return seconds - (time.monotonic() - started)

  settings = start.commit.settings
  if start.embed is not None:
    start = dataclasses.replace(start, embed=functools.cache(start.embed))
  before = folder.memory.newest().records
  new = {past.key: past for past in _remembered(questions, start)}
  seen = Seen.open(folder.path, settings.seen)
  learned, asked = _split(questions, new, seen)
  known = {**before, **{key: past.after(before.get(key)) for key, past in new.items()}}
  others = Memory(past for key, past in known.items() if key not in {*map(key_of, asked)})
  _try(others, start, seconds=left() / 4)

  candidates = _candidates(folder, start, learned, memory=others, seconds=left)
  choice = _compare(candidates, asked)
  chosen = candidates[choice.chosen]
  everything = Memory(known.values())
  used = dataclasses.replace(settings, ranking=chosen.ranking, memory=chosen.memory is not None)
  snapshot = dataclasses.replace(
    chosen.snapshot, commit=dataclasses.replace(start.commit, settings=used)
  )
  tried = _try(everything, snapshot, seconds=left() / 2)
  # Scores of questions that an adapter or a tower learned from are too good.
  seen = seen.plus(map(key_of, learned)) if chosen.like else seen
  unseen = [question for question in questions if key_of(question) not in seen]
  model = learn_answerability(
    snapshot,
    unseen,
    memory=everything if used.memory else Memory(),
    seconds=max(left(), _LAST_SHARE * seconds),
  )
  with folder.exclusively() as edit:
    if edit.settings.encoder != settings.encoder:
      raise ValueError(f"{folder.path} got another encoder while this one was trained")
    used = dataclasses.replace(
      edit.settings, answerability="", ranking=used.ranking, memory=used.memory
    )
    used = dataclasses.replace(used, **chosen.write(folder.path), seen=seen.write(folder.path))
    if model is not None:
      model = dataclasses.replace(model, encoder=used.encoder, adapter=used.adapter)
      used = dataclasses.replace(used, answerability=model.write(folder.path))
    edit.settings = used
    _remember(folder, new, tried, before=before, snapshot=snapshot, encoder=used.encoder)
  return choice


def _remembered(questions: Sequence[Question], snapshot: Snapshot) -> list[PastQuestion]:
  """Returns questions with the best passages that have their answers."""
  return [
    feedback.answered(
      snapshot,
      PastQuestion(
        question=question.text, answers=question.answers, regex=question.regex, time=time.time()
      ),
    )
    for question in progress.track(questions, what="questions to remember")
  ]


def _remember(
  folder: Folder,
  new: Mapping[str, PastQuestion],
  tried: Mapping[str, Trial],
  *,
  before: Mapping[str, PastQuestion],
  snapshot: Snapshot,
  encoder: str,
) -> None:
  """Writes what was learned, but for what was said or forgotten in the meantime."""
  now, written = folder.memory.newest(), {}
  for key, past in new.items():
    if (said := now.get(key)) is not None and said != before.get(key):
      past = said.after(past)
    elif said is None and before.get(key) is not None:
      continue  # it was forgotten
    written[key] = past.after(said)
  if encoder != snapshot.commit.settings.encoder:  # past questions are compared by the new one
    written = {**{key: past for key, past in now.records.items() if key not in written}, **written}
  embed, ids = snapshot.embed, {one.id for past in written.values() for one in past.judged}
  gone = folder.newest().missing(ids)
  kept = filter(None, (past.without(gone) for past in written.values()))
  folder.memory.write(
    [
      past if embed is None else past.with_embedding(encoder, embed(past.question)) for past in kept
    ],
    {key: trial for key, trial in tried.items() if key in written or now.get(key)},
  )


def _try(memory: Memory, snapshot: Snapshot, *, seconds: float) -> dict[str, Trial]:
  """Tries those past questions whose trials are missing or stale, and returns the trials."""
  started, tried = time.monotonic(), {}
  for past in progress.track(memory.untested(snapshot.num_passages), what="trials"):
    if time.monotonic() - started > seconds:
      break
    tried[past.key] = trials.test(past, snapshot, memory)
    memory.add_trial(past.key, tried[past.key])
  return tried


def _candidates(
  folder: Folder,
  start: Snapshot,
  learned: Sequence[Question],
  *,
  memory: Memory,
  seconds: Callable[[], float],
) -> dict[str, Candidate]:
  """Returns what is in use and what may be instead, by name."""
  settings = start.commit.settings
  ranking = settings.ranking if start.embed is not None else "words"
  found = {
    _START: Candidate(snapshot=start, ranking=ranking, memory=memory),
    _FORGETFUL: Candidate(snapshot=start, ranking=ranking, memory=None),
  }
  if start.embed is None:
    return found
  name_of = {ranking: _START}
  for by in commits.RANKINGS:
    if by != ranking:
      name_of[by] = f"{_START}, {by}"
      found[name_of[by]] = dataclasses.replace(found[_START], ranking=by)
  changed: dict[str, tuple[Snapshot, Callable[[str], dict[str, Any]]]] = {}
  adapter = learning.adapt(start, learned, seconds=seconds() / 3)
  if adapter is not None:
    changed["adapted"] = (
      dataclasses.replace(start, adapt=adapter),
      lambda path: {"adapter": adapter.write(path)},
    )
  encoder = folder.encoder(settings.encoder)
  if isinstance(encoder, Encoder):  # one from elsewhere has no tower to train
    tuned = learning.tune(encoder, start, learned, seconds=seconds() * (1 - 2 * _LAST_SHARE))
    changed["trained"] = (
      dataclasses.replace(start, embed=functools.cache(tuned.question), adapt=None),
      lambda path: {"adapter": "", "encoder": models.write_encoder(path, tuned)},
    )
  for name, (snapshot, write) in changed.items():
    # Its own, because past questions are embedded as this candidate does.
    own = Memory(memory.records.values())
    _try(own, snapshot, seconds=seconds() / 4)
    for by in ("encoder", "fused"):
      found[name if by == "encoder" else f"{name}, {by}"] = Candidate(
        snapshot=snapshot, ranking=by, memory=own, like=name_of[by], write=write
      )
  return found


def _split(
  questions: Sequence[Question], past: Mapping[str, PastQuestion], seen: Seen
) -> tuple[list[Question], list[Question]]:
  """Returns questions to learn from, and others to compare by, in an order of chance.

  Questions for one passage stay together, unless many are for it. A digest decides, so a question
  is always on the same side; nothing in use has learned from those to compare by.
  """
  passage_of = {key: one.useful[0] for key, one in past.items() if one.useful}
  number_of, ordered = collections.Counter(passage_of.values()), []
  for question in questions:
    passage = passage_of.get(key_of(question))
    group = key_of(question)
    if passage is not None and number_of[passage] <= _OFTEN * len(questions):
      group = f"{passage.id} {passage.digest}"
    ordered.append((_chance(group), _chance(key_of(question)), question))
  ordered.sort(key=lambda one: one[:2])
  asked = [
    question
    for group, _, question in ordered
    if group % _HELD_OUT == 0 and key_of(question) not in seen
  ][:_MOST_HELD_OUT]
  keys = {*map(key_of, asked)}
  learned = [q for group, _, q in ordered if key_of(q) not in keys and group % _HELD_OUT]
  return sorted(learned, key=lambda one: _chance(key_of(one))), asked


def _chance(text: str) -> int:
  return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _compare(candidates: Mapping[str, Candidate], questions: Sequence[Question]) -> Choice:
  """Chooses the candidate that finds most answers among five passages, if it is shown to."""
  if len(questions) < _FEWEST_ASKED:
    return Choice(chosen=_START, means={_START: {}}, comparisons={})
  names = _naming(candidates[_START].snapshot, questions)
  titles = _titles(candidates[_START].snapshot)
  scores = {
    name: {**found_answers(one.search, questions, names=names), _TITLES: _ranks(one, titles)}
    for name, one in candidates.items()
  }
  compared = {
    name: {
      figure: resampling.compare(values, scores[_START][figure])
      for figure, values in of.items()
      if len(values)
    }
    for name, of in scores.items()
    if name != _START
  }
  p_values = []
  for name, of in compared.items():
    against = [of[_FIGURE]]
    if (like := candidates[name].like) not in ("", _START):
      against.append(resampling.compare(scores[name][_FIGURE], scores[like][_FIGURE]))
    p_values.append(max(one.p_value if one.difference > 0 else 1.0 for one in against))
  better = [
    name
    for (name, of), p in zip(compared.items(), resampling.holm(p_values), strict=True)
    if p < _LEVEL and not (_TITLES in of and of[_TITLES].interval[1] < 0)
  ]
  return Choice(
    chosen=max(better, key=lambda name: compared[name][_FIGURE].difference, default=_START),
    means={
      name: {figure: float(values.mean()) for figure, values in of.items() if len(values)}
      for name, of in scores.items()
    },
    comparisons=compared,
  )


def _naming(snapshot: Snapshot, questions: Sequence[Question]) -> Callable[[Question, Hit], bool]:
  """Returns what tells whether a passage has a word of a question that few others have."""
  number_of = collections.Counter(term for q in questions for term in snapshot.terms(q.text))
  most = max(1, int(_OFTEN * len(questions)))

  @functools.lru_cache
  def rare(text: str) -> frozenset[str]:
    return frozenset(term for term in snapshot.terms(text) if number_of[term] <= most)

  def names(question: Question, hit: Hit) -> bool:
    terms = rare(question.text)
    return not terms or not terms.isdisjoint(
      snapshot.terms(f"{hit.title} {hit.heading} {hit.text}")
    )

  return names


def _titles(snapshot: Snapshot) -> list[tuple[str, str]]:
  """Returns titles of some documents, and their ids."""
  places = snapshot.documents(slice(None))
  step = max(1, len(places) // _NUM_TITLES)
  named = ((snapshot.title(place), snapshot.id(place)) for place in places[::step])
  return [(title, id) for title, id in named if title][:_NUM_TITLES]


def _ranks(candidate: Candidate, titles: Sequence[tuple[str, str]]) -> np.ndarray:
  """Returns the reciprocal rank of the document of each title among ten passages."""
  found = [[hit.id == id for hit in candidate.search(title, _DEPTH)] for title, id in titles]
  return 1 / (1 + np.array([*map(first_right, found)]))
